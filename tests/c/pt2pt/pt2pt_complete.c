/* Waitany, Waitsome, Waitall, Testany, Testsome, Testall, Request_get_status, with persistent requests: indices,
 * statuses, null and inactive requests, and the status fields that are set.
 * test: ranks=1,2,3,4,8 */
#include "../check.h"

#define N 32

static int to, from;

static void send_values(int count, int tag)
{
    for (int i = 0; i < count; i++)
        OK(MPI_Send(&i, 1, MPI_INT, to, tag + i, MPI_COMM_WORLD));
}

static void post(int count, int tag, int *values, MPI_Request *requests)
{
    for (int i = 0; i < count; i++) {
        values[i] = -1;
        OK(MPI_Irecv(&values[i], 1, MPI_INT, from, tag + i, MPI_COMM_WORLD, &requests[i]));
    }
}

/* Some of the requests are null; each of the others completes once. */
static void complete_any(int testing)
{
    MPI_Request requests[N + 2];
    MPI_Status status;
    int values[N], seen[N] = {0}, index, flag;
    post(N, 100, values, requests);
    requests[N] = requests[N + 1] = MPI_REQUEST_NULL;
    send_values(N, 100);
    for (int done = 0; done < N;) {
        status.MPI_ERROR = 4711;
        if (testing) {
            OK(MPI_Testany(N + 2, requests, &index, &flag, &status));
            if (!flag) {
                SAME(index, MPI_UNDEFINED);
                continue;
            }
        } else {
            OK(MPI_Waitany(N + 2, requests, &index, &status));
        }
        SAME(status.MPI_ERROR, 4711); /* unchanged by calls that complete one request */
        CHECK(index >= 0 && index < N && !seen[index]);
        seen[index] = 1;
        STATUS(status, from, 100 + index, 4);
        SAME(values[index], index);
        CHECK(requests[index] == MPI_REQUEST_NULL);
        done++;
    }
    index = 5;
    flag = 0;
    if (testing)
        OK(MPI_Testany(N + 2, requests, &index, &flag, &status));
    else
        OK(MPI_Waitany(N + 2, requests, &index, &status));
    SAME(index, MPI_UNDEFINED);
    SAME(flag, testing);
    STATUS(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    meet();
}

static void complete_some(int testing)
{
    MPI_Request requests[N];
    MPI_Status statuses[N];
    int values[N], seen[N] = {0}, indices[N], count;
    post(N, 200, values, requests);
    send_values(N, 200);
    for (int done = 0; done < N; done += count) {
        if (testing)
            OK(MPI_Testsome(N, requests, &count, indices, statuses));
        else
            OK(MPI_Waitsome(N, requests, &count, indices, statuses));
        if (count == MPI_UNDEFINED || (!testing && count < 1)) {
            fail(__LINE__, "count is %d with %d of %d done", count, done, N);
            return;
        }
        for (int i = 0; i < count; i++) {
            int index = indices[i];
            CHECK(index >= 0 && index < N && !seen[index]);
            seen[index] = 1;
            STATUS(statuses[i], from, 200 + index, 4);
            SAME(values[index], index);
            CHECK(requests[index] == MPI_REQUEST_NULL);
        }
    }
    if (testing)
        OK(MPI_Testsome(N, requests, &count, indices, statuses));
    else
        OK(MPI_Waitsome(N, requests, &count, indices, statuses));
    SAME(count, MPI_UNDEFINED);
    meet();
}

static void complete_all(int testing, int ignoring)
{
    MPI_Request requests[2 * N];
    MPI_Status statuses[2 * N];
    int values[N], sent[N], flag = 0;
    post(N, 300, values, requests);
    for (int i = 0; i < N; i++) {
        sent[i] = i;
        requests[N + i] = MPI_REQUEST_NULL;
        if (i % 2)
            OK(MPI_Issend(&sent[i], 1, MPI_INT, to, 300 + i, MPI_COMM_WORLD, &requests[N + i]));
        else
            OK(MPI_Send(&sent[i], 1, MPI_INT, to, 300 + i, MPI_COMM_WORLD));
    }
    MPI_Status *where = ignoring ? MPI_STATUSES_IGNORE : statuses;
    if (testing)
        while (!flag)
            OK(MPI_Testall(2 * N, requests, &flag, where));
    else
        OK(MPI_Waitall(2 * N, requests, where));
    for (int i = 0; i < N; i++) {
        SAME(values[i], i);
        CHECK(requests[i] == MPI_REQUEST_NULL && requests[N + i] == MPI_REQUEST_NULL);
        if (!ignoring)
            STATUS(statuses[i], from, 300 + i, 4);
        if (!ignoring && i % 2 == 0)
            STATUS(statuses[N + i], MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    }
    meet();
}

/* Testall changes no request until all are complete. */
static void test_all_or_nothing(void)
{
    MPI_Request requests[2];
    int values[2], flag = 1;
    post(2, 400, values, requests);
    OK(MPI_Send(&rank, 1, MPI_INT, to, 400, MPI_COMM_WORLD));
    meet();
    OK(MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE));
    SAME(flag, 0);
    CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
    meet();
    OK(MPI_Send(&rank, 1, MPI_INT, to, 401, MPI_COMM_WORLD));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    SAME(values[0], from);
    SAME(values[1], from);
}

static void look_without_freeing(void)
{
    MPI_Request request;
    MPI_Status status;
    int value = -1, flag = 1;
    OK(MPI_Irecv(&value, 1, MPI_INT, from, 500, MPI_COMM_WORLD, &request));
    OK(MPI_Request_get_status(request, &flag, &status));
    SAME(flag, 0);
    meet();
    OK(MPI_Send(&rank, 1, MPI_INT, to, 500, MPI_COMM_WORLD));
    do
        OK(MPI_Request_get_status(request, &flag, &status));
    while (!flag);
    STATUS(status, from, 500, 4);
    SAME(value, from);
    OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    SAME(flag, 1);
    OK(MPI_Test(&request, &flag, &status));
    SAME(flag, 1);
    CHECK(request == MPI_REQUEST_NULL);
    STATUS(status, from, 500, 4);
    OK(MPI_Request_get_status(MPI_REQUEST_NULL, &flag, &status));
    SAME(flag, 1);
    STATUS(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
}

/* A request that ends with an error is complete; the call returns its index with the error. */
static void complete_with_error(void)
{
    enum { CALLS = 6 };
    MPI_Comm comm;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int small, large[4] = {0}, flag, index, count, indices[2];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int call = 0; call < CALLS; call++) {
        int code = -1;
        requests[0] = MPI_REQUEST_NULL;
        OK(MPI_Irecv(&small, 1, MPI_INT, from, 710, comm, &requests[1]));
        OK(MPI_Send(large, 4, MPI_INT, to, 710, comm));
        flag = 0, index = count = indices[0] = -7;
        statuses[0].MPI_ERROR = statuses[1].MPI_ERROR = -7;
        switch (call) {
        case 0:
            while (!flag)
                code = MPI_Test(&requests[1], &flag, &statuses[1]);
            break;
        case 1:
            while (!flag)
                code = MPI_Testall(2, requests, &flag, statuses);
            SAME(statuses[0].MPI_ERROR, MPI_SUCCESS);
            break;
        case 2:
            while (!flag)
                code = MPI_Testany(2, requests, &index, &flag, &statuses[1]);
            break;
        case 3:
            code = MPI_Waitany(2, requests, &index, &statuses[1]);
            break;
        case 4:
            do
                code = MPI_Testsome(2, requests, &count, indices, statuses);
            while (count == 0);
            break;
        default:
            code = MPI_Waitsome(2, requests, &count, indices, statuses);
        }
        CLASS(code, call == 1 || call > 3 ? MPI_ERR_IN_STATUS : MPI_ERR_TRUNCATE);
        CHECK(requests[1] == MPI_REQUEST_NULL);
        if (call == 1)
            SAME(statuses[1].MPI_ERROR, MPI_ERR_TRUNCATE);
        if (call == 2 || call == 3)
            SAME(index, 1);
        if (call > 3) {
            SAME(count, 1);
            SAME(indices[0], 1);
            SAME(statuses[0].MPI_ERROR, MPI_ERR_TRUNCATE);
        }
    }
    OK(MPI_Comm_free(&comm));
}

/* Persistent requests remain valid after the handles they were created from are freed. */
static void start_after_free(void)
{
    MPI_Comm comm;
    MPI_Datatype pair;
    MPI_Request requests[2];
    int sent[4], values[4];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    OK(MPI_Recv_init(values, 1, pair, from, 700, comm, &requests[0]));
    OK(MPI_Send_init(sent, 1, pair, to, 700, comm, &requests[1]));
    OK(MPI_Type_free(&pair));
    OK(MPI_Comm_free(&comm));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) {
            sent[i] = 10 * round + 4 * rank + i;
            values[i] = -1;
        }
        OK(MPI_Startall(2, requests));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        SAME(values[0], 10 * round + 4 * from);
        SAME(values[1], -1);
        SAME(values[2], 10 * round + 4 * from + 2);
        SAME(values[3], -1);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
}

/* Inactive persistent requests count as null ones; started ones complete and stay allocated. */
static void complete_persistent(void)
{
    MPI_Request requests[4];
    MPI_Status status, statuses[4];
    int values[2], sent[2], index, count, indices[4], flag = 0;
    for (int i = 0; i < 2; i++) {
        OK(MPI_Recv_init(&values[i], 1, MPI_INT, from, 600 + i, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Send_init(&sent[i], 1, MPI_INT, to, 600 + i, MPI_COMM_WORLD, &requests[2 + i]));
    }
    OK(MPI_Waitany(4, requests, &index, &status));
    SAME(index, MPI_UNDEFINED);
    OK(MPI_Testsome(4, requests, &count, indices, statuses));
    SAME(count, MPI_UNDEFINED);
    OK(MPI_Testall(4, requests, &flag, statuses));
    SAME(flag, 1);
    OK(MPI_Wait(&requests[0], &status));
    STATUS(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0);
    OK(MPI_Test(&requests[0], &flag, &status));
    SAME(flag, 1);
    for (int round = 0; round < 200; round++) {
        sent[0] = 2 * round + rank;
        sent[1] = 3 * round + rank;
        values[0] = values[1] = -1;
        OK(MPI_Startall(4, requests));
        if (round % 3 == 0) {
            OK(MPI_Waitall(4, requests, statuses));
            STATUS(statuses[0], from, 600, 4);
            STATUS(statuses[1], from, 601, 4);
        } else if (round % 3 == 1) {
            for (int i = 0; i < 4; i++) {
                OK(MPI_Waitany(4, requests, &index, &status));
                if (index == 0 || index == 1)
                    STATUS(status, from, 600 + index, 4);
            }
        } else {
            for (int done = 0; done < 4; done += count) {
                OK(MPI_Waitsome(4, requests, &count, indices, statuses));
                if (count == MPI_UNDEFINED)
                    return fail(__LINE__, "active requests are not seen");
            }
        }
        SAME(values[0], 2 * round + from);
        SAME(values[1], 3 * round + from);
        for (int i = 0; i < 4; i++)
            CHECK(requests[i] != MPI_REQUEST_NULL);
    }
    for (int i = 0; i < 4; i++)
        OK(MPI_Request_free(&requests[i]));
    OK(MPI_Waitall(0, NULL, NULL));
    OK(MPI_Waitany(0, NULL, &index, &status));
    SAME(index, MPI_UNDEFINED);
    meet();
}

/* An active request that is freed still completes its operation. */
static void free_active(void)
{
    static unsigned char big[50000];
    static int token;
    MPI_Request request;
    fill(big, sizeof big, 9);
    OK(MPI_Isend(big, sizeof big, MPI_BYTE, to, 700, MPI_COMM_WORLD, &request));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    unsigned char *in = allocate(sizeof big);
    OK(MPI_Recv(in, sizeof big, MPI_BYTE, from, 700, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    HOLDS(in, sizeof big, 9);
    free(in);
    /* The neighbour has received everything when it sends this token. */
    int token_in;
    OK(MPI_Sendrecv(&token, 1, MPI_INT, from, 701, &token_in, 1, MPI_INT, to, 701, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

/* Several errors: each status has its own, successful ones have MPI_SUCCESS. */
static void complete_with_errors(void)
{
    MPI_Request requests[3];
    MPI_Status statuses[3];
    char buffers[3][8];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++)
        OK(MPI_Irecv(buffers[i], 8, MPI_BYTE, from, 800 + i, MPI_COMM_WORLD, &requests[i]));
    meet();
    char data[16] = "abcdefghijklmno";
    OK(MPI_Send(data, 8, MPI_BYTE, to, 800, MPI_COMM_WORLD));
    OK(MPI_Send(data, 16, MPI_BYTE, to, 801, MPI_COMM_WORLD));
    OK(MPI_Send(data, 4, MPI_BYTE, to, 802, MPI_COMM_WORLD));
    CLASS(MPI_Waitall(3, requests, statuses), MPI_ERR_IN_STATUS);
    SAME(statuses[0].MPI_ERROR, MPI_SUCCESS);
    SAME(class_of(statuses[1].MPI_ERROR), MPI_ERR_TRUNCATE);
    SAME(statuses[2].MPI_ERROR, MPI_SUCCESS);
    STATUS(statuses[2], from, 802, 4);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    to = (rank + 1) % ranks;
    from = (rank + ranks - 1) % ranks;
    for (int testing = 0; testing < 2; testing++) {
        complete_any(testing);
        complete_some(testing);
        complete_all(testing, 0);
        complete_all(testing, 1);
    }
    test_all_or_nothing();
    look_without_freeing();
    complete_persistent();
    start_after_free();
    complete_with_error();
    free_active();
    complete_with_errors();
    return finish();
}
