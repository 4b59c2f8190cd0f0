/* After a warm-up the immediate path makes no allocation and no system call, in any number of runs; nor do collectives
 * of two ranks. The allocator is replaced by one that counts. System calls are caught by the kernel's dispatch to user
 * space (Linux 5.11), enabled for the measured section. If an adapter carries the messages, only its driver may access
 * its device (Soft-RoCE's does at every post).
 * test: ranks=2 variants=none env=FASTPATH_WAIT=spin env=FASTPATH_SPIN=1000s timeout=120 within=node needs=machine */
#define _GNU_SOURCE
#include "../check.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

/* More messages than a ring has slots, so that warm-up and measured section both wrap around it. */
static int rounds = 300; /* or the first argument */

static volatile char selector; /* 0: system calls pass; 1: they are caught */
static volatile int counting;
static long taken, calls, last_call, pardoned = -1;
static char of_adapter[256]; /* numbers of the descriptors of an adapter */
/* Allocations that a measured section may make. Over an adapter the number of unexpected messages varies, and with
 * it the moment when a further buffer is allocated; the buffer is kept. */
static long allowance;

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

void *malloc(size_t bytes)
{
    taken += counting;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    taken += counting;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    taken += counting;
    return __libc_realloc(old, bytes);
}

void free(void *memory)
{
    taken += counting && memory;
    __libc_free(memory);
}

void *memalign(size_t align, size_t bytes)
{
    taken += counting;
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

int posix_memalign(void **result, size_t align, size_t bytes)
{
    *result = memalign(align, bytes);
    return *result ? 0 : ENOMEM;
}

/* Executes and counts the system call that was caught. Later ones pass until the next measured section. */
static void caught(int signal, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)signal;
    selector = 0;
    int talks = info->si_syscall == SYS_write || info->si_syscall == SYS_read || info->si_syscall == SYS_ioctl;
    unsigned long descriptor = (unsigned long)r[REG_RDI];
    int to_adapter = talks && descriptor < sizeof of_adapter && of_adapter[descriptor];
    if (info->si_syscall != pardoned && !to_adapter) {
        calls++;
        last_call = info->si_syscall;
    }
    long result = syscall(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
    r[REG_RAX] = result == -1 ? -errno : result;
}

static void begin(void)
{
    counting = 1;
    selector = 1;
}

static void end(void)
{
    selector = 0;
    counting = 0;
}

/* Runs `what` many times as a warm-up, then many times measured. Over an adapter the warm-up is longer, so that the
 * number of unexpected messages has reached its maximum. */
#define SILENT(name, what)                                                                                   \
    do {                                                                                                     \
        for (int i_ = 0; i_ < (allowance ? 10 : 1) * rounds; i_++) {                                         \
            what;                                                                                            \
        }                                                                                                    \
        taken = calls = 0;                                                                                   \
        for (int i_ = 0; i_ < rounds; i_++) {                                                                \
            begin();                                                                                         \
            what;                                                                                            \
            end();                                                                                           \
        }                                                                                                    \
        if (taken > allowance || calls)                                                                      \
            fail(__LINE__, "%s: %ld calls of the allocator and %ld system calls (last: number %ld) in %d",   \
                 name, taken, calls, last_call, rounds);                                                     \
    } while (0)

/* The counters work: they count calls outside MPI that would be caught there. */
static void check_instruments(void)
{
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    struct timespec now;
    sigaction(SIGSYS, &action, NULL);
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, 0, 0, &selector)) {
        fprintf(stderr, "this kernel cannot dispatch system calls to user space (Linux 5.11 can)\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    begin();
    pid_t parent = (pid_t)syscall(SYS_getppid);
    void *volatile memory = malloc(10);
    end();
    CHECK(parent == getppid());
    SAME(calls, 1);
    SAME(last_call, SYS_getppid);
    SAME(taken, 1);
    free(memory);
    calls = 0;
    begin();
    clock_gettime(CLOCK_MONOTONIC, &now);
    end();
    if (calls) /* a machine whose clock is read by a system call only */
        pardoned = last_call;
}

/* Finds the descriptors of adapters, if any. */
static void find_adapters(void)
{
    for (int fd = 0; fd < (int)sizeof of_adapter; fd++) {
        char path[40], target[200] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        of_adapter[fd] = length > 0 && (strstr(target, "/dev/infiniband/") || strstr(target, "infinibandevent"));
        if (of_adapter[fd])
            allowance = rounds / 50;
    }
}

static char out[9000], in[9000];
static int other;

static void ping_pong(int count, MPI_Datatype type)
{
    if (rank == 0) {
        MPI_Send(out, count, type, other, 1, MPI_COMM_WORLD);
        MPI_Recv(in, count, type, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, count, type, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, count, type, other, 1, MPI_COMM_WORLD);
    }
}

static void both_ways(int bytes)
{
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Irecv(in, bytes, MPI_BYTE, other, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, MPI_BYTE, other, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], &status);
}

static void all_at_once(int bytes)
{
    MPI_Request requests[2];
    MPI_Irecv(in, bytes, MPI_BYTE, other, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, MPI_BYTE, other, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void wild_receive(void)
{
    MPI_Status status;
    MPI_Send(out, 8, MPI_BYTE, other, 4, MPI_COMM_WORLD);
    MPI_Recv(in, 8, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
}

/* Unexpected messages are kept in buffers by size. Their number in the measured sections depends on how far one rank is
 * ahead of the other. This function allocates enough buffers of every size. */
static void warm_up_unexpected(void)
{
    static const int sizes[] = {128, 400, 1000, 4000, 8000};
    for (int size = 0; size < (int)(sizeof sizes / sizeof *sizes); size++) {
        for (int i = 0; i < 64; i++)
            MPI_Send(out, sizes[size], MPI_BYTE, other, 7, MPI_COMM_WORLD);
        MPI_Sendrecv(out, 0, MPI_BYTE, other, 8, in, 0, MPI_BYTE, other, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 64; i++)
            MPI_Recv(in, sizes[size], MPI_BYTE, other, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Broadcasts from both ranks, so that neither fills the ring of the other. */
static void broadcasts(double *one)
{
    MPI_Bcast(one, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Bcast(one, 1, MPI_DOUBLE, 1, MPI_COMM_WORLD);
}

static void persistent(MPI_Request *pair)
{
    MPI_Startall(2, pair);
    MPI_Waitall(2, pair, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    MPI_Datatype three;
    MPI_Request pair[2];
    double one[16] = {0}, sum[16];
    start(&argc, &argv);
    other = 1 - rank;
    if (argc > 1)
        rounds = atoi(argv[1]);
    check_instruments();
    find_adapters();
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    MPI_Send_init(out, 8, MPI_BYTE, other, 5, MPI_COMM_WORLD, &pair[0]);
    MPI_Recv_init(in, 8, MPI_BYTE, other, 5, MPI_COMM_WORLD, &pair[1]);

    warm_up_unexpected();
    SILENT("send and receive, 0 bytes", ping_pong(0, MPI_BYTE));
    SILENT("send and receive, 8 bytes", ping_pong(8, MPI_BYTE));
    SILENT("send and receive, 48 bytes", ping_pong(48, MPI_BYTE));
    SILENT("send and receive, 400 bytes", ping_pong(400, MPI_BYTE));
    SILENT("send and receive, 8000 bytes", ping_pong(8000, MPI_BYTE));
    SILENT("send and receive, a type of three integers", ping_pong(2, three));
    SILENT("sendrecv, 8 bytes", MPI_Sendrecv(out, 8, MPI_BYTE, other, 1, in, 8, MPI_BYTE, other, 1, MPI_COMM_WORLD,
                                             MPI_STATUS_IGNORE));
    SILENT("sendrecv, 1000 bytes", MPI_Sendrecv(out, 1000, MPI_BYTE, other, 1, in, 1000, MPI_BYTE, other, 1,
                                                MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SILENT("isend, irecv and wait, 8 bytes", both_ways(8));
    SILENT("isend, irecv and wait, 4000 bytes", both_ways(4000));
    SILENT("waitall", all_at_once(8));
    SILENT("a receive with wildcards", wild_receive());
    SILENT("persistent requests", persistent(pair));
    SILENT("barrier", MPI_Barrier(MPI_COMM_WORLD));
    SILENT("allreduce of one", MPI_Allreduce(one, sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    SILENT("allreduce of sixteen", MPI_Allreduce(one, sum, 16, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    SILENT("broadcasts", broadcasts(one));

    MPI_Request_free(&pair[0]);
    MPI_Request_free(&pair[1]);
    MPI_Type_free(&three);
    return finish();
}
