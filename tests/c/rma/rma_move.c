/* test: ranks=1,2,3,4,8
   MPI_Put and MPI_Get to and from every kind of window, for every size, with derived datatypes on either side, and a
   displacement unit for each rank. */
#include "rma_check.h"
#include <sys/mman.h>
#include <unistd.h>

static const size_t sizes[] = {0, 1, 3, 8, 40, 64, 100, 1000, 4096, 5000, 65536, 100001, 1 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, MOST = 1 << 20 };

/* Displacement unit of a rank. */
static int unit_of(int of)
{
    return 1 << of % 4;
}

/* Each rank writes to its right neighbour at 8, and reads the data of its left neighbour. */
static void test_sizes(int kind)
{
    struct window w = make_window(kind, MOST + 64, unit_of(rank));
    unsigned char *out = allocate(MOST), *in = allocate(MOST);
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < SIZES; i++) {
        int bytes = (int)sizes[i];
        fill(out, sizes[i], (unsigned)(100 * i + rank));
        memset(in, 7, sizes[i]);
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, w.win));
        OK(MPI_Put(out, bytes, MPI_BYTE, right, place(&w, right, 8, unit_of(right)), bytes, MPI_BYTE, w.win));
        OK(MPI_Win_fence(0, w.win));
        HOLDS(w.base + 8, sizes[i], (unsigned)(100 * i + left));
        CHECK(w.base[7] == 0 && (sizes[i] == MOST || i + 1 == SIZES || w.base[8 + sizes[i]] == 0 || i > 0));
        OK(MPI_Get(in, bytes, MPI_BYTE, left, place(&w, left, 8, unit_of(left)), bytes, MPI_BYTE, w.win));
        OK(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT, w.win));
        HOLDS(in, sizes[i], (unsigned)(100 * i + (left + ranks - 1) % ranks));
        OK(MPI_Get_c(in, bytes, MPI_BYTE, rank, place(&w, rank, 8, unit_of(rank)), bytes, MPI_BYTE, w.win));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
        HOLDS(in, sizes[i], (unsigned)(100 * i + left));
    }
    free(out);
    free(in);
    free_window(&w);
}

/* Columns of a local matrix of ints become rows at the target and back: derived datatypes on one side, on both, and
 * none. */
static void test_types(int kind)
{
    enum { N = 60 };
    struct window w = make_window(kind, N * N * sizeof(int), sizeof(int));
    MPI_Datatype column, spread, row;
    MPI_Type_vector(N, 1, N, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Type_create_hvector(N, 1, 3 * sizeof(int), MPI_INT, &spread);
    MPI_Type_commit(&spread);
    MPI_Type_contiguous(N, MPI_INT, &row);
    MPI_Type_commit(&row);
    int *there = (int *)w.base, here[N * N], line[N];
    int right = (rank + 1) % ranks;
    for (int i = 0; i < N * N; i++)
        here[i] = 10000 * rank + i;
    OK(MPI_Win_fence(0, w.win));
    /* Local column 5 becomes row 7 at the target. */
    OK(MPI_Put(here + 5, 1, column, right, place(&w, right, 7 * N * sizeof(int), sizeof(int)), 1, row, w.win));
    /* Local row 3 becomes column 11 at the target. It crosses row 7, whose element is not checked. */
    OK(MPI_Win_fence(0, w.win));
    int left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < N; i++)
        SAME(there[7 * N + i], 10000 * left + 5 + i * N);
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(here + 3 * N, N, MPI_INT, right, place(&w, right, 11 * sizeof(int), sizeof(int)), 1, column, w.win));
    OK(MPI_Win_fence(0, w.win));
    for (int i = 0; i < N; i++)
        SAME(there[i * N + 11], 10000 * left + 3 * N + i);
    CHECK(there[12] == 0 && there[10] == 0);
    OK(MPI_Win_fence(0, w.win));
    /* Column 11 of the target becomes every third local int. */
    memset(here, 0, sizeof here);
    OK(MPI_Get(here, 1, spread, right, place(&w, right, 11 * sizeof(int), sizeof(int)), 1, column, w.win));
    OK(MPI_Get(line, N, MPI_INT, right, place(&w, right, 11 * sizeof(int), sizeof(int)), 1, column, w.win));
    OK(MPI_Win_fence(0, w.win));
    for (int i = 0; i < N; i++) {
        SAME(here[3 * i], 10000 * rank + 3 * N + i);
        SAME(line[i], 10000 * rank + 3 * N + i);
        if (i + 1 < N)
            CHECK(here[3 * i + 1] == 0 && here[3 * i + 2] == 0);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&spread);
    MPI_Type_free(&row);
    free_window(&w);
}

/* Many small puts of all ranks to all, completed by one fence. */
static void test_many(int kind)
{
    enum { EACH = 300 };
    struct window w = make_window(kind, (size_t)ranks * EACH * sizeof(int), sizeof(int));
    int *values = allocate((size_t)ranks * EACH * sizeof(int));
    OK(MPI_Win_fence(0, w.win));
    for (int to = 0; to < ranks; to++)
        for (int i = 0; i < EACH; i++) {
            int *value = values + to * EACH + i;
            *value = 1000000 * rank + 1000 * to + i;
            OK(MPI_Put(value, 1, MPI_INT, to, place(&w, to, ((size_t)rank * EACH + (size_t)i) * sizeof(int), sizeof(int)), 1,
                       MPI_INT, w.win));
        }
    OK(MPI_Win_fence(0, w.win));
    for (int from = 0; from < ranks; from++)
        for (int i = 0; i < EACH; i++)
            SAME(((int *)w.base)[from * EACH + i], 1000000 * from + 1000 * rank + i);
    free(values);
    free_window(&w);
}

/* MPI_PROC_NULL is valid in every call and moves no data; the request forms complete. */
static void test_null_and_requests(int kind)
{
    struct window w = make_window(kind, 4096, 1);
    int value = 5, result = 6, right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    OK(MPI_Win_fence(0, w.win));
    OK(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
    OK(MPI_Get(&result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win));
    OK(MPI_Accumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win));
    OK(MPI_Get_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win));
    OK(MPI_Fetch_and_op(&value, &result, MPI_INT, MPI_PROC_NULL, 0, MPI_SUM, w.win));
    OK(MPI_Compare_and_swap(&value, &value, &result, MPI_INT, MPI_PROC_NULL, 0, w.win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, w.win));
    SAME(result, 6);
    OK(MPI_Win_lock_all(0, w.win));
    MPI_Request requests[4];
    unsigned char out[2000], in[2000];
    fill(out, sizeof out, 1000u + (unsigned)rank);
    OK(MPI_Rput(out, sizeof out, MPI_BYTE, right, place(&w, right, 100, 1), sizeof out, MPI_BYTE, w.win, &requests[0]));
    OK(MPI_Rput(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    memset(out, 0, sizeof out);
    OK(MPI_Win_flush(right, w.win));
    OK(MPI_Win_flush(MPI_PROC_NULL, w.win));
    OK(MPI_Rget(in, sizeof in, MPI_BYTE, right, place(&w, right, 100, 1), sizeof in, MPI_BYTE, w.win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    CHECK(requests[0] == MPI_REQUEST_NULL);
    HOLDS(in, sizeof in, 1000u + (unsigned)rank);
    OK(MPI_Win_unlock_all(w.win));
    meet();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w.win));
    HOLDS(w.base + 100, sizeof in, 1000u + (unsigned)left);
    OK(MPI_Win_unlock(rank, w.win));
    free_window(&w);
}

/* A lock of MPI_PROC_NULL begins an epoch, which ends the epoch of a fence. */
static void test_null_locks(int kind)
{
    struct window w = make_window(kind, 64, 1);
    int value = 5, result = 6;
    MPI_Request requests[4];
    for (int fenced = 0; fenced < 2; fenced++) {
        if (fenced)
            OK(MPI_Win_fence(0, w.win));
        OK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, w.win));
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, w.win));
        OK(MPI_Rput(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &requests[0]));
        OK(MPI_Rget(&result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, w.win, &requests[1]));
        OK(MPI_Raccumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win, &requests[2]));
        OK(MPI_Rget_accumulate(&value, 1, MPI_INT, &result, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, w.win,
                               &requests[3]));
        OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
        OK(MPI_Win_flush(MPI_PROC_NULL, w.win));
        OK(MPI_Win_unlock(MPI_PROC_NULL, w.win));
        OK(MPI_Win_unlock(MPI_PROC_NULL, w.win));
        SAME(result, 6);
    }
    OK(MPI_Win_lock_all(0, w.win));
    OK(MPI_Win_unlock_all(w.win));
    free_window(&w);
}

/* Read-only memory is a window for gets; one rank has no memory. */
static void test_odd_memory(void)
{
    static const char text[] = "memory that may only be read";
    static char stack_like[64];
    char got[sizeof text] = "", *base = rank % 2 ? stack_like : (char *)text;
    MPI_Win win;
    strcpy(stack_like, "memory of another kind there");
    MPI_Aint size = rank == ranks - 1 && ranks > 1 ? 0 : (MPI_Aint)sizeof text;
    OK(MPI_Win_create(base, size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    for (int from = 0; from < ranks; from++) {
        if (from == ranks - 1 && ranks > 1) {
            OK(MPI_Get(got, 0, MPI_CHAR, from, 0, 0, MPI_CHAR, win));
            continue;
        }
        OK(MPI_Get(got, sizeof text, MPI_CHAR, from, 0, sizeof text, MPI_CHAR, win));
        OK(MPI_Win_fence(0, win));
        CHECK(strcmp(got, from % 2 ? stack_like : text) == 0);
    }
    if (ranks > 1) {
        OK(MPI_Win_fence(0, win));
    }
    OK(MPI_Win_free(&win));
}

/* Stack variables, and a mapped file: all bytes are transferred and read back, and reach the file. */
static void test_stack_and_file(void)
{
    enum { N = 5000 };
    unsigned char on_stack[N] = {0}, out[N], in[N] = {0};
    char name[] = "/dev/shm/rma_move.XXXXXX";
    int file = mkstemp(name), right = (rank + 1) % ranks;
    CHECK(file >= 0 && ftruncate(file, N) == 0);
    unlink(name);
    unsigned char *mapped = mmap(NULL, N, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(mapped != MAP_FAILED);
    for (int way = 0; way < 2; way++) {
        MPI_Win win;
        OK(MPI_Win_create(way ? mapped : on_stack, N, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        fill(out, N, 40u + (unsigned)rank);
        OK(MPI_Win_fence(0, win));
        OK(MPI_Put(out, N, MPI_BYTE, right, 0, N, MPI_BYTE, win));
        OK(MPI_Win_fence(0, win));
        OK(MPI_Get(in, N, MPI_BYTE, right, 0, N, MPI_BYTE, win));
        OK(MPI_Win_fence(0, win));
        HOLDS(in, N, 40u + (unsigned)rank);
        OK(MPI_Win_free(&win));
    }
    HOLDS(on_stack, N, 40u + (unsigned)((rank + ranks - 1) % ranks));
    CHECK(pread(file, in, N, 0) == N);
    HOLDS(in, N, 40u + (unsigned)((rank + ranks - 1) % ranks));
    munmap(mapped, N);
    close(file);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    for (int kind = 0; kind < KINDS; kind++) {
        int before = failures;
        if (!has_kind(kind))
            continue;
        test_sizes(kind);
        test_types(kind);
        test_many(kind);
        test_null_and_requests(kind);
        test_null_locks(kind);
        if (failures != before)
            fprintf(stderr, "rank %d: the window was of kind %s\n", rank, kind_names[kind]);
    }
    test_odd_memory();
    test_stack_and_file();
    return finish();
}
