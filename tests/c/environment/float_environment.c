/* MPI calls leave the floating-point environment of the program unchanged: flags, traps, rounding and MXCSR. With
 * `trap` every exception is trapped, so that one in the library ends the program. Only reductions of floating-point
 * data compute on the program's behalf.
 * test: ranks=1,2,3 timeout=120 args=flags;trap;round link=-lm */
#define _GNU_SOURCE
#include "../check.h"
#include <fenv.h>
#include <unistd.h>

enum { WORDS = 1 << 19, ROUNDS = 40 };

static fenv_t expected;
static const char *mode;

/* Sets the environment that every call must preserve. */
static void set_environment(void)
{
    feclearexcept(FE_ALL_EXCEPT);
    if (strcmp(mode, "trap") == 0)
        feenableexcept(FE_ALL_EXCEPT);
    if (strcmp(mode, "round") == 0) {
        fesetround(FE_UPWARD);
        feraiseexcept(FE_UNDERFLOW); /* a flag that is set stays set */
#ifdef __x86_64__
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); /* subnormal numbers are zero */
#endif
    }
    fegetenv(&expected);
}

static void compare(const char *call, int line)
{
    fenv_t now;
    fegetenv(&now);
#ifdef __x86_64__
    if (now.__mxcsr != expected.__mxcsr)
        fail(line, "%s: MXCSR is %#x instead of %#x", call, now.__mxcsr, expected.__mxcsr);
    if (now.__control_word != expected.__control_word || now.__status_word != expected.__status_word)
        fail(line, "%s: x87 control and status are %#x and %#x instead of %#x and %#x", call, now.__control_word,
             now.__status_word, expected.__control_word, expected.__status_word);
#else
    if (memcmp(&now, &expected, sizeof now) != 0)
        fail(line, "%s changes the floating-point environment", call);
#endif
    fesetenv(&expected);
}

#define KEEPS(call)                                                                         \
    do {                                                                                    \
        OK(call);                                                                           \
        compare(#call, __LINE__);                                                           \
    } while (0)

static int *data, *more, *all;

static void messages(int next, int before)
{
    static const int sizes[] = {0, 1, 12, 13, 100, 1000, 2048, 5000, 20000, 70000, 150000, WORDS};
    for (int round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            MPI_Request requests[2];
            int size = sizes[i];
            if (round > 4 && size > 70000)
                continue;
            KEEPS(MPI_Irecv(more, size, MPI_INT, before, round, MPI_COMM_WORLD, &requests[0]));
            KEEPS(MPI_Isend(data, size, MPI_INT, next, round, MPI_COMM_WORLD, &requests[1]));
            KEEPS(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
            KEEPS(MPI_Sendrecv(data, size, MPI_INT, next, 5, more, size, MPI_INT, before, 5, MPI_COMM_WORLD,
                               MPI_STATUS_IGNORE));
        }
}

static void collectives(void)
{
    static const int sizes[] = {1, 100, 5000, 100000};
    MPI_Comm half;
    KEEPS(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half));
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int size = sizes[i];
        MPI_Request request;
        KEEPS(MPI_Barrier(MPI_COMM_WORLD));
        KEEPS(MPI_Bcast(data, size, MPI_INT, 0, MPI_COMM_WORLD));
        KEEPS(MPI_Reduce(data, more, size, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
        KEEPS(MPI_Allreduce(data, more, size, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        KEEPS(MPI_Allreduce(data, more, size, MPI_INT, MPI_MAX, half));
        KEEPS(MPI_Allgather(data, size, MPI_INT, all, size, MPI_INT, MPI_COMM_WORLD));
        KEEPS(MPI_Alltoall(all, size, MPI_INT, more, size, MPI_INT, MPI_COMM_SELF));
        KEEPS(MPI_Scan(data, more, size, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        KEEPS(MPI_Iallreduce(data, more, size, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
        KEEPS(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    KEEPS(MPI_Comm_free(&half));
}

/* Exact sums raise no flag: exceptions of vector lanes beyond the operands must not become visible. */
static void reductions(void)
{
    double *in = allocate(1001 * sizeof *in), *sum = allocate(1001 * sizeof *sum);
    for (int i = 0; i < 1001; i++)
        in[i] = i;
    for (int count = 1; count <= 1001; count += 25)
        KEEPS(MPI_Allreduce(in, sum, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    SAME(sum[1000], 1000 * ranks);
    free(in);
    free(sum);
}

static void windows(int next)
{
    MPI_Win win;
    int *memory, one = 1, old;
    KEEPS(MPI_Win_allocate(WORDS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    KEEPS(MPI_Win_fence(0, win));
    KEEPS(MPI_Put(data, WORDS, MPI_INT, next, 0, WORDS, MPI_INT, win));
    KEEPS(MPI_Win_fence(0, win));
    KEEPS(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win));
    KEEPS(MPI_Get(more, 1000, MPI_INT, next, 0, 1000, MPI_INT, win));
    KEEPS(MPI_Win_flush(next, win));
    KEEPS(MPI_Accumulate(data, 1000, MPI_INT, next, 0, 1000, MPI_INT, MPI_SUM, win));
    KEEPS(MPI_Win_flush(next, win));
    KEEPS(MPI_Fetch_and_op(&one, &old, MPI_INT, next, 0, MPI_SUM, win));
    KEEPS(MPI_Win_unlock(next, win));
    KEEPS(MPI_Win_free(&win));
    KEEPS(MPI_Win_create(data, 1000, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    KEEPS(MPI_Win_free(&win));
    KEEPS(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    KEEPS(MPI_Win_attach(win, data, 1000));
    KEEPS(MPI_Win_detach(win, data));
    KEEPS(MPI_Win_free(&win));
}

static void files(void)
{
    char path[300];
    MPI_File file;
    MPI_Datatype strided;
    snprintf(path, sizeof path, "%s/float-environment", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    KEEPS(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                        MPI_INFO_NULL, &file));
    KEEPS(MPI_Type_vector(100, 10, 10 * ranks, MPI_INT, &strided));
    KEEPS(MPI_Type_commit(&strided));
    KEEPS(MPI_File_set_view(file, rank * 10 * (MPI_Offset)sizeof(int), MPI_INT, strided, "native", MPI_INFO_NULL));
    KEEPS(MPI_File_write_all(file, data, 1000, MPI_INT, MPI_STATUS_IGNORE));
    KEEPS(MPI_File_read_at(file, 0, more, 1000, MPI_INT, MPI_STATUS_IGNORE));
    KEEPS(MPI_File_close(&file));
    KEEPS(MPI_Type_free(&strided));
}

static void spawn(char *program)
{
    MPI_Comm children;
    char *args[] = {(char *)mode, NULL};
    KEEPS(MPI_Comm_spawn(program, args, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE));
    KEEPS(MPI_Barrier(children));
    KEEPS(MPI_Comm_disconnect(&children));
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    int provided, set;
    MPI_T_cvar_handle handle;
    mode = argc > 1 ? argv[1] : "flags";
    set_environment();
    KEEPS(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    KEEPS(MPI_T_cvar_handle_alloc(0, NULL, &handle, &set));
    KEEPS(MPI_T_cvar_handle_free(&handle));
    KEEPS(MPI_Init(&argc, &argv));
    KEEPS(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    KEEPS(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    KEEPS(MPI_Comm_get_parent(&parent));
    if (parent != MPI_COMM_NULL) {
        KEEPS(MPI_Barrier(parent));
        KEEPS(MPI_Comm_disconnect(&parent));
    } else {
        data = calloc(WORDS, sizeof *data);
        more = calloc(WORDS, sizeof *more);
        all = calloc((size_t)ranks * 100000, sizeof *all);
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        messages(next, before);
        collectives();
        reductions();
        windows(next);
        files();
        spawn(argv[0]);
        free(data);
        free(more);
        free(all);
    }
    KEEPS(MPI_Finalize());
    KEEPS(MPI_T_finalize());
    return failures ? 1 : 0;
}
