/* Partitioned communication: different numbers of partitions on both sides, any order, several threads that mark
 * partitions, early partitions, noncontiguous datatypes, and rejected arguments.
 * test: ranks=1,2,3,4 mistakes=yes */
#include "../check.h"
#include <pthread.h>

enum { TOTAL = 96 * 1024 };

/* Around the ring: `out` partitions at the sender, `in` partitions at the receiver, `bytes` in total. */
static void check_counts(MPI_Comm comm, int out, int in, int bytes, int tag)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char *to = allocate(bytes), *from = allocate(bytes);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    OK(MPI_Precv_init(from, in, bytes / in, MPI_BYTE, left, tag, comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Psend_init(to, out, bytes / out, MPI_BYTE, right, tag, comm, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 5; round++) {
        int flag = 0;
        fill(to, bytes, (unsigned)(rank + round));
        memset(from, 0xee, bytes);
        OK(MPI_Startall(2, requests));
        for (int i = 0; i < out; i++)
            OK(MPI_Pready((i * 7 + round) % out, requests[1]));
        if (round % 2)
            for (int i = 0; i < in; i++)
                for (flag = 0; !flag;)
                    OK(MPI_Parrived(requests[0], i, &flag));
        OK(MPI_Waitall(2, requests, statuses));
        STATUS(statuses[0], left, tag, bytes);
        HOLDS(from, bytes, (unsigned)(left + round));
        CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
        OK(MPI_Parrived(requests[0], 0, &flag));
        CHECK(flag);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
    free(to);
    free(from);
}

/* A partition arrives, and MPI_Parrived reports it, while other partitions are not ready. */
static void check_early(MPI_Comm comm)
{
    enum { PARTS = 8, EACH = 5000 };
    static int to[PARTS * EACH], from[PARTS * EACH];
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, flag, list[] = {1, 6};
    MPI_Request requests[2];
    OK(MPI_Psend_init(to, PARTS, EACH, MPI_INT, right, 0, comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(from, PARTS, EACH, MPI_INT, left, 0, comm, MPI_INFO_NULL, &requests[1]));
    for (int i = 0; i < PARTS * EACH; i++)
        to[i] = rank * 1000000 + i;
    OK(MPI_Startall(2, requests));
    OK(MPI_Pready_list(2, list, requests[0]));
    for (int i = 0; i < 2; i++)
        for (flag = 0; !flag;)
            OK(MPI_Parrived(requests[1], list[i], &flag));
    OK(MPI_Parrived(requests[1], 0, &flag));
    CHECK(!flag);
    SAME(from[EACH], left * 1000000 + EACH);
    SAME(from[7 * EACH - 1], left * 1000000 + 7 * EACH - 1);
    OK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    meet();
    OK(MPI_Pready(0, requests[0]));
    OK(MPI_Pready_range(2, 5, requests[0]));
    OK(MPI_Pready_range(7, 7, requests[0]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < PARTS * EACH; i++)
        if (from[i] != left * 1000000 + i) {
            fail(__LINE__, "element %d is %d", i, from[i]);
            break;
        }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

/* Requests with one tag match in order, others by tag; includes the highest and the lowest tag. */
static void check_order(MPI_Comm comm)
{
    int tags[] = {3, 3, 1, 0, 2, 0x7fffffff, 3}, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    enum { N = 7 };
    int to[N][4], from[N][4];
    MPI_Request requests[2 * N];
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 4; j++)
            to[i][j] = rank * 100 + i * 10 + j;
        OK(MPI_Psend_init(to[i], 2, 2, MPI_INT, right, tags[i], comm, MPI_INFO_NULL, &requests[i]));
    }
    for (int i = N - 1, later = 0; i >= 0; i--) {
        /* Requests with tag 3 match in the order of their creation. */
        int which = tags[i] == 3 ? (int[]){0, 1, 6}[later++] : i;
        OK(MPI_Precv_init(from[which], 4, 1, MPI_INT, left, tags[which], comm, MPI_INFO_NULL, &requests[N + which]));
    }
    OK(MPI_Startall(N, requests + N));
    OK(MPI_Startall(N, requests));
    for (int i = 0; i < N; i++)
        OK(MPI_Pready_range(0, 1, requests[i]));
    OK(MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < 4; j++)
            SAME(from[i][j], left * 100 + i * 10 + j);
    for (int i = 0; i < 2 * N; i++)
        MPI_Request_free(&requests[i]);
}

/* Noncontiguous elements on both sides; partitions of the sender end inside the receiver's elements. */
static void check_types(MPI_Comm comm)
{
    MPI_Datatype strided, pair;
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Type_vector(3, 1, 2, MPI_INT, &strided); /* 3 of 5 */
    MPI_Type_commit(&strided);
    MPI_Type_vector(2, 1, 3, MPI_INT, &pair); /* 2 of 4 */
    MPI_Type_commit(&pair);
    enum { OUT = 4, IN = 3 };
    /* 4 partitions of 2 x 3 integers; 3 partitions of 4 x 2. */
    int to[OUT * 2 * 5], from[IN * 4 * 4];
    for (int i = 0; i < OUT * 2 * 5; i++)
        to[i] = rank * 1000 + i;
    memset(from, 0xff, sizeof from);
    MPI_Request requests[2];
    OK(MPI_Psend_init(to, OUT, 2, strided, right, 4, comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(from, IN, 4, pair, left, 4, comm, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 2; round++) {
        OK(MPI_Startall(2, requests));
        for (int i = OUT - 1; i >= 0; i--)
            OK(MPI_Pready(i, requests[0]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < OUT * 2 * 3; i++) {
            int there = i / 2 * 4 + i % 2 * 3, here = i / 3 * 5 + i % 3 * 2;
            SAME(from[there], left * 1000 + here);
        }
        SAME(from[1], -1);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Type_free(&strided);
    MPI_Type_free(&pair);
}

enum { THREADS = 4, PARTITIONS = 64, EACH = 1000 };
static MPI_Request shared;
static unsigned char shared_data[PARTITIONS * EACH];
static int current;

static void *mark(void *which)
{
    int thread = (int)(long)which;
    for (int i = thread; i < PARTITIONS; i += THREADS) {
        for (int j = 0; j < EACH; j++)
            shared_data[i * EACH + j] = byte_of((unsigned)(rank + current), (size_t)i * EACH + j);
        OK(MPI_Pready(i, shared));
    }
    return NULL;
}

static void check_threads(MPI_Comm comm)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    unsigned char *from = allocate(sizeof shared_data);
    MPI_Request receive;
    OK(MPI_Psend_init(shared_data, PARTITIONS, EACH, MPI_BYTE, right, 5, comm, MPI_INFO_NULL, &shared));
    OK(MPI_Precv_init(from, 10, sizeof shared_data / 10, MPI_BYTE, left, 5, comm, MPI_INFO_NULL, &receive));
    for (current = 0; current < 20; current++) {
        pthread_t threads[THREADS];
        OK(MPI_Start(&receive));
        OK(MPI_Start(&shared));
        for (long i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, mark, (void *)i))
                exit(3);
        OK(MPI_Wait(&shared, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        HOLDS(from, sizeof shared_data, (unsigned)(left + current));
    }
    MPI_Request_free(&receive);
    MPI_Request_free(&shared);
    free(from);
}

/* A pair freed before its first start has matched, so the next pair with its tag is matched independently. */
static void check_freed(MPI_Comm comm)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, to[60], from[60];
    for (int order = 0; order < 4; order++) {
        int receives_first = order & 1, frees_early = order & 2;
        MPI_Request requests[2];
        for (int step = 0; step < 2; step++) {
            if (receives_first != step)
                OK(MPI_Precv_init(from, 3, 20, MPI_INT, left, 7, comm, MPI_INFO_NULL, &requests[0]));
            else
                OK(MPI_Psend_init(to, 4, 15, MPI_INT, right, 7, comm, MPI_INFO_NULL, &requests[1]));
            if (step == 0 && frees_early)
                OK(MPI_Request_free(&requests[!receives_first]));
            meet();
        }
        for (int i = 0; i < 2; i++)
            if (requests[i] != MPI_REQUEST_NULL)
                OK(MPI_Request_free(&requests[i]));
        OK(MPI_Psend_init(to, 2, 30, MPI_INT, right, 7, comm, MPI_INFO_NULL, &requests[1]));
        OK(MPI_Precv_init(from, 5, 12, MPI_INT, left, 7, comm, MPI_INFO_NULL, &requests[0]));
        for (int i = 0; i < 60; i++)
            to[i] = rank * 1000 + order * 100 + i;
        OK(MPI_Startall(2, requests));
        OK(MPI_Pready_range(0, 1, requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 60; i++)
            SAME(from[i], left * 1000 + order * 100 + i);
        OK(MPI_Request_free(&requests[0]));
        OK(MPI_Request_free(&requests[1]));
    }
    /* A communicator is freed while one of its receives is unmatched, and its successors work. */
    for (int round = 0; round < 20; round++) {
        MPI_Comm brief;
        MPI_Request request;
        OK(MPI_Comm_dup(comm, &brief));
        OK(MPI_Precv_init(from, 1, 1, MPI_INT, left, 7, brief, MPI_INFO_NULL, &request));
        OK(MPI_Request_free(&request));
        OK(MPI_Comm_free(&brief));
    }
}

/* MPI_Parrived of inactive requests. */
static void check_inactive(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int data[4], flag = 0;
    OK(MPI_Parrived(request, 0, &flag));
    CHECK(flag);
    for (int peer = 0; peer < 2; peer++) {
        OK(MPI_Precv_init(data, 2, 2, MPI_INT, peer ? rank : MPI_PROC_NULL, 8, comm, MPI_INFO_NULL, &request));
        flag = 0;
        OK(MPI_Parrived(request, 1, &flag));
        CHECK(flag);
        CLASS(MPI_Parrived(request, 2, &flag), MPI_ERR_ARG);
        OK(MPI_Request_free(&request));
    }
}

static void check_refused(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL, other;
    MPI_Status status;
    int data[8] = {0}, flag = 0;
    CLASS(MPI_Psend_init(data, -1, 1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_ARG);
    CLASS(MPI_Psend_init(data, 2, -1, MPI_INT, 0, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_COUNT);
    CLASS(MPI_Psend_init(data, 2, 1, MPI_INT, ranks, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_RANK);
    CLASS(MPI_Precv_init(data, 2, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_INFO_NULL, &request), MPI_ERR_RANK);
    CLASS(MPI_Precv_init(data, 2, 1, MPI_INT, 0, MPI_ANY_TAG, comm, MPI_INFO_NULL, &request), MPI_ERR_TAG);
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Psend_init(data, 2, 1, MPI_INT, rank, 9, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(data + 4, 1, 2, MPI_INT, rank, 9, comm, MPI_INFO_NULL, &other));
    CLASS(MPI_Pready(0, request), MPI_ERR_REQUEST);
    OK(MPI_Start(&request));
    OK(MPI_Start(&other));
    CLASS(MPI_Pready(2, request), MPI_ERR_ARG);
    CLASS(MPI_Pready(0, other), MPI_ERR_REQUEST);
    CLASS(MPI_Parrived(request, 0, &flag), MPI_ERR_REQUEST);
    CLASS(MPI_Parrived(other, 1, &flag), MPI_ERR_ARG);
    OK(MPI_Pready(0, request));
    CLASS(MPI_Pready(0, request), MPI_ERR_ARG);
    CLASS(MPI_Request_free(&request), MPI_ERR_REQUEST);
    CLASS(MPI_Start(&request), MPI_ERR_REQUEST);
    OK(MPI_Pready(1, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&other, &status));
    MPI_Request_free(&request);
    MPI_Request_free(&other);
    /* MPI_PROC_NULL, and no data. */
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 9, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 9, comm, MPI_INFO_NULL, &other));
    OK(MPI_Start(&request));
    OK(MPI_Start(&other));
    OK(MPI_Pready_range(0, 3, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&other, &status));
    STATUS(status, MPI_PROC_NULL, MPI_ANY_TAG, 0);
    MPI_Request_free(&request);
    MPI_Request_free(&other);
    OK(MPI_Psend_init(NULL, 3, 0, MPI_INT, rank, 9, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(NULL, 2, 0, MPI_INT, rank, 9, comm, MPI_INFO_NULL, &other));
    OK(MPI_Start(&request));
    OK(MPI_Start(&other));
    OK(MPI_Pready_range(0, 2, request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&other, &status));
    STATUS(status, rank, 9, 0);
    MPI_Request_free(&request);
    MPI_Request_free(&other);
    /* Requests that were never started can be freed. */
    OK(MPI_Psend_init(data, 2, 1, MPI_INT, rank, 10, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(data, 2, 1, MPI_INT, rank, 10, comm, MPI_INFO_NULL, &other));
    OK(MPI_Request_free(&other));
    OK(MPI_Request_free(&request));
    OK(MPI_Precv_init(data, 2, 1, MPI_INT, rank, 11, comm, MPI_INFO_NULL, &other));
    OK(MPI_Request_free(&other));
    /* A longer buffer: bytes behind the message stay unchanged, and partitions of the receive without data do not delay
     * completion. */
    int room[6] = {-1, -1, -1, -1, -1, -1}, two[2] = {7, 8}, count;
    OK(MPI_Psend_init(two, 1, 2, MPI_INT, rank, 12, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(room, 3, 2, MPI_INT, rank, 12, comm, MPI_INFO_NULL, &other));
    for (int round = 0; round < 2; round++) {
        two[0] = 7 + round;
        OK(MPI_Start(&other));
        OK(MPI_Start(&request));
        OK(MPI_Parrived(other, 0, &flag));
        CHECK(!flag);
        OK(MPI_Pready(0, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int part = 0; part < 3; part++)
            for (flag = 0; !flag;)
                OK(MPI_Parrived(other, part, &flag));
        OK(MPI_Wait(&other, &status));
        STATUS(status, rank, 12, 8);
        MPI_Get_count(&status, MPI_INT, &count);
        SAME(count, 2);
        CHECK(room[0] == 7 + round && room[1] == 8 && room[2] == -1 && room[5] == -1);
    }
    MPI_Request_free(&request);
    MPI_Request_free(&other);
    /* Too many bytes. */
    OK(MPI_Psend_init(data, 2, 1, MPI_INT, rank, 12, comm, MPI_INFO_NULL, &request));
    OK(MPI_Precv_init(data, 1, 1, MPI_INT, rank, 12, comm, MPI_INFO_NULL, &other));
    OK(MPI_Start(&request));
    OK(MPI_Pready_range(0, 1, request));
    OK(MPI_Start(&other));
    CLASS(MPI_Wait(&other, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI_Request_free(&request);
    MPI_Request_free(&other);
}

int main(int argc, char **argv)
{
    int level, counts[] = {1, 2, 3, 4, 6, 16, 96};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &meeting);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 7; j++) {
            check_counts(comm, counts[i], counts[j], 96, i);
            check_counts(comm, counts[i], counts[j], TOTAL, i);
        }
    check_counts(comm, 16, 2, 16 * 300000, 3);
    check_early(comm);
    check_order(comm);
    check_types(comm);
    if (level == MPI_THREAD_MULTIPLE)
        check_threads(comm);
    check_freed(comm);
    check_inactive(comm);
    check_refused(comm);
    MPI_Comm_free(&comm);
    return finish();
}
