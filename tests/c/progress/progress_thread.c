/* FASTPATH_PROGRESS=thread: messages progress while the program computes and makes no MPI call. The state of the other
 * side is read from memory that both sides map. Without the setting messages do not progress, and there is no thread.
 * test: ranks=2,3 timeout=120 variants=none env=FASTPATH_PROGRESS=thread args=single;multiple;without needs=machine */
#define _GNU_SOURCE
#include "../check.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BIG (4 << 20)
#define MANY 3000
#define PART 4096
#define THREAD "fastpath-progr"

/* Steps that ranks 0 and 1 have completed. */
static struct {
    volatile int posted, sent, over;
} *both;
static unsigned char *out, *in;
static int with = 1;
static MPI_Datatype columns; /* 64 of every 128 bytes of BIG */

static void map_together(void)
{
    char name[256] = "";
    int file = -1;
    if (rank == 0) {
        const char *folder = getenv("TMPDIR");
        snprintf(name, sizeof name, "%s/progress-XXXXXX", folder ? folder : "/tmp");
        file = mkstemp(name);
        CHECK(file >= 0 && ftruncate(file, 4096) == 0);
        OK(MPI_Send(name, sizeof name, MPI_CHAR, 1, 9, MPI_COMM_WORLD));
        OK(MPI_Recv(NULL, 0, MPI_CHAR, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        unlink(name);
    } else if (rank == 1) {
        OK(MPI_Recv(name, sizeof name, MPI_CHAR, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        file = open(name, O_RDWR);
        OK(MPI_Send(NULL, 0, MPI_CHAR, 0, 9, MPI_COMM_WORLD));
    } else {
        return;
    }
    both = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(both != MAP_FAILED);
    close(file);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Computes until the other side has completed a step. Without the setting the other side must not complete it. */
static void compute_until(int line, volatile int *step, int value)
{
    double from = now();
    while (*step != value && (with || now() < from + 0.2))
        for (volatile int work = 0; work < 1000; work++)
            continue;
    if (!with && *step == value)
        fail(line, "the other side went on by itself");
}

static void await_step(volatile int *step, int value)
{
    while (*step != value)
        usleep(100);
}

/* Rank 1 computes with its receive posted; rank 0 sends in a mode that completes after the match. */
static void receiver_computes(int number, int bytes, int mode)
{
    MPI_Request request;
    if (rank == 1) {
        memset(in, 0, (size_t)bytes);
        OK(MPI_Irecv(in, bytes, MPI_BYTE, 0, number, MPI_COMM_WORLD, &request));
        both->posted = number;
        compute_until(__LINE__, &both->sent, number);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        HOLDS(in, (size_t)bytes, (unsigned)number);
    } else if (rank == 0) {
        fill(out, (size_t)bytes, (unsigned)number);
        await_step(&both->posted, number);
        switch (mode) {
        case 0: OK(MPI_Send(out, bytes, MPI_BYTE, 1, number, MPI_COMM_WORLD)); break;
        case 1: OK(MPI_Ssend(out, bytes, MPI_BYTE, 1, number, MPI_COMM_WORLD)); break;
        default:
            OK(MPI_Issend(out, bytes, MPI_BYTE, 1, number, MPI_COMM_WORLD, &request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        both->sent = number;
    }
    meet();
}

/* The message is fragmented, so the computing side needs the thread repeatedly. `sends`: the sender computes. */
static void strided(int number, int sends)
{
    MPI_Request request;
    int half = BIG / 2, peer = 1 - rank, computes = (rank == 0) == sends;
    if (rank > 1) {
        meet();
        return;
    }
    memset(in, 0, BIG);
    if (rank == 0)
        fill(out, BIG, (unsigned)number);
    if (computes) {
        if (sends)
            OK(MPI_Isend(out, 1, columns, peer, number, MPI_COMM_WORLD, &request));
        else
            OK(MPI_Irecv(in, half, MPI_BYTE, peer, number, MPI_COMM_WORLD, &request));
        both->posted = number;
        compute_until(__LINE__, &both->sent, number);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        await_step(&both->posted, number);
        if (sends)
            OK(MPI_Recv(in, half, MPI_BYTE, peer, number, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        else
            OK(MPI_Send(out, 1, columns, peer, number, MPI_COMM_WORLD));
        both->sent = number;
    }
    if (rank == 1)
        for (int i = 0; i < half; i++)
            if (in[i] != byte_of((unsigned)number, (size_t)(i / 64 * 128 + i % 64))) {
                fail(__LINE__, "byte %d is wrong", i);
                break;
            }
    meet();
}

/* Both ranks compute: the receiver polls its buffer. */
static void both_compute(int number)
{
    MPI_Request request;
    if (rank == 0) {
        fill(out, BIG, (unsigned)number);
        OK(MPI_Isend(out, 1, columns, 1, number, MPI_COMM_WORLD, &request));
        compute_until(__LINE__, &both->over, number);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else if (rank == 1) {
        volatile unsigned char *last = &in[BIG / 2 - 1];
        unsigned char expected = byte_of((unsigned)number, BIG - 64 - 1);
        memset(in, (unsigned char)~expected, BIG);
        OK(MPI_Irecv(in, BIG / 2, MPI_BYTE, 0, number, MPI_COMM_WORLD, &request));
        while (*last != expected)
            continue;
        both->over = number;
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    meet();
}

/* More messages than the queue holds, to a receiver that computes. */
static void many(int number)
{
    static MPI_Request requests[MANY];
    unsigned char *memory = NULL;
    if (rank <= 1)
        memory = allocate((size_t)MANY * PART);
    for (int i = 0; i < MANY && rank <= 1; i++) {
        unsigned char *part = memory + (size_t)i * PART;
        if (rank == 1) {
            OK(MPI_Irecv(part, PART, MPI_BYTE, 0, number, MPI_COMM_WORLD, &requests[i]));
            continue;
        }
        if (i == 0)
            await_step(&both->posted, number);
        fill(part, PART, (unsigned)i);
        OK(MPI_Isend(part, PART, MPI_BYTE, 1, number, MPI_COMM_WORLD, &requests[i]));
    }
    if (rank == 1) {
        both->posted = number;
        compute_until(__LINE__, &both->sent, number);
    }
    if (rank <= 1)
        OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
    if (rank == 0)
        both->sent = number;
    for (int i = 0; i < MANY && rank == 1; i++)
        HOLDS(memory + (size_t)i * PART, PART, (unsigned)i);
    free(memory);
    meet();
}

/* Number of progress threads of this process. */
static int count_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    int found = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char path[300], name[64] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file))
            found += strcmp(name, THREAD "\n") == 0;
        if (file)
            fclose(file);
    }
    if (folder)
        closedir(folder);
    return found;
}

static double used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Idle, and with a receive that is never matched, the thread uses at most 1 ms of CPU time in a second. The
 * measurement is repeated if the value is too high, because the clock of a virtual processor advances while the host
 * does not run it. */
static void rests(void)
{
    MPI_Request request;
    int word = 0, to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int pending = 0; pending < 2; pending++) {
        if (pending)
            OK(MPI_Irecv(&word, 1, MPI_INT, from, 77, MPI_COMM_WORLD, &request));
        meet();
        double took = 1;
        for (int again = 0; again < 4 && took >= 1e-3; again++) {
            struct timespec second = {1, 0};
            double before = used();
            nanosleep(&second, NULL);
            took = used() - before;
        }
        if (took >= 1e-3)
            fail(__LINE__, "%g s of the processor in an idle second", took);
        meet();
    }
    OK(MPI_Send(&rank, 1, MPI_INT, to, 77, MPI_COMM_WORLD));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    SAME(word, from);
}

/* Number of threads once it equals `expected`, or after a second. A thread sets its name after it starts, and a
 * network thread that it starts inherits the name until then. A joined thread stays in /proc for a moment: the
 * kernel wakes the joiner before it removes the entry. */
static int count_settled(int expected)
{
    int found = count_threads();
    for (int i = 0; i < 1000 && found != expected; i++, found = count_threads())
        usleep(1000);
    return found;
}

static volatile int signals, strays;
static void take_signal(int number)
{
    (void)number;
    signals++;
    strays += syscall(SYS_gettid) != getpid();
}

int main(int argc, char **argv)
{
    int level = argc > 1 && strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, given = -1;
    if (argc > 1 && strcmp(argv[1], "without") == 0) {
        unsetenv("FASTPATH_PROGRESS");
        with = 0;
    }
    SAME(count_threads(), 0);
    OK(MPI_Init_thread(&argc, &argv, level, &given));
    SAME(given, level);
    OK(MPI_Query_thread(&given));
    SAME(given, level);
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &meeting));
    SAME(count_settled(with), with);
    signal(SIGUSR1, take_signal);
    out = allocate(BIG);
    in = allocate(BIG);
    OK(MPI_Type_vector(BIG / 128, 64, 128, MPI_BYTE, &columns));
    OK(MPI_Type_commit(&columns));
    map_together();
    int number = 1;
    for (int again = 0; again < (with ? 20 : 2); again++) {
        receiver_computes(number++, BIG, 0);
        receiver_computes(number++, 96 << 10, 0);
        receiver_computes(number++, 8, 1);
        receiver_computes(number++, 8, 2);
        receiver_computes(number++, 20000, 2);
        strided(number++, 0);
        strided(number++, 1);
        if (with)
            both_compute(number++);
        if (with && again % 5 == 0)
            many(number++);
        kill(getpid(), SIGUSR1);
    }
    CHECK(signals > 0);
    SAME(strays, 0);
    if (with)
        rests();
    OK(MPI_Type_free(&columns));
    int code = finish();
    SAME(count_settled(0), 0);
    return code || failures != 0;
}
