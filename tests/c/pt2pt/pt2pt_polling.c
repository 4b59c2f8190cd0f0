/* Calls that may return without completion yield the processor. A call without completion is a miss. On an
 * oversubscribed node the first misses yield, at most one for each rank, and later ones at most once in 10 us.
 * Elsewhere one miss in 256 yields. The program replaces sched_yield and counts its calls.
 * test: ranks=1,2,3,4,8 args=test;testall;testany;testsome;status;iprobe;improbe;any_source variants=none timeout=120 */
#define _GNU_SOURCE
#include "../check.h"
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 200, MISSES = 2000, TAG = 3, NEVER = 4, HOLD_NS = 10000, UNTIL_NS = 1000000000, QUICK_NS = 500 };

static long yields, misses;

int sched_yield(void)
{
    yields++;
    return (int)syscall(SYS_sched_yield);
}

static long read_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Polls once with the named call for the message that `request` receives, or that a probe finds. */
static int poll_once(const char *way, MPI_Request *request, int peer, int tag)
{
    int flag = 0, index = 0, indices[1];
    MPI_Message message;
    MPI_Status status;
    if (!strcmp(way, "test"))
        OK(MPI_Test(request, &flag, &status));
    else if (!strcmp(way, "testall"))
        OK(MPI_Testall(1, request, &flag, &status));
    else if (!strcmp(way, "testany"))
        OK(MPI_Testany(1, request, &index, &flag, &status));
    else if (!strcmp(way, "testsome"))
        OK(MPI_Testsome(1, request, &flag, indices, &status));
    else if (!strcmp(way, "status"))
        OK(MPI_Request_get_status(*request, &flag, &status));
    else if (!strcmp(way, "iprobe"))
        OK(MPI_Iprobe(peer, tag, MPI_COMM_WORLD, &flag, &status));
    else if (!strcmp(way, "any_source"))
        OK(MPI_Iprobe(MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, &flag, &status));
    else if (!strcmp(way, "improbe")) {
        OK(MPI_Improbe(peer, tag, MPI_COMM_WORLD, &flag, &message, &status));
        if (flag) {
            int word;
            OK(MPI_Mrecv(&word, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
            SAME(word, tag);
        }
    }
    misses += !flag;
    return flag;
}

/* One step of a ring in which all ranks only poll. */
static void step(const char *way)
{
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, out = TAG, in = 0;
    int probes = strstr(way, "probe") || !strcmp(way, "any_source");
    MPI_Request receive = MPI_REQUEST_NULL;
    if (!probes)
        OK(MPI_Irecv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, &receive));
    OK(MPI_Send(&out, 1, MPI_INT, right, TAG, MPI_COMM_WORLD));
    while (!poll_once(way, &receive, left, TAG))
        ;
    if (probes && strcmp(way, "improbe"))
        OK(MPI_Recv(&in, 1, MPI_INT, left, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    else if (!strcmp(way, "status"))
        OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    if (strcmp(way, "improbe"))
        SAME(in, TAG);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *way = argc > 1 ? argv[1] : "test";
    int crowded = ranks > sysconf(_SC_NPROCESSORS_ONLN);
    /* Waits until all ranks are there and awake. */
    for (int i = 0; i < STEPS; i++)
        step(way);
    /* No message arrives for this rank while it polls; the others poll too. After a yield in which another rank
     * computed for a time slice, all polls of such a slice may pass without a yield. In a library built without
     * optimisation a poll takes so long that the program seems to work between polls: then it is valid that no poll
     * yields. */
    int nothing;
    MPI_Request never;
    OK(MPI_Irecv(&nothing, 1, MPI_INT, rank, NEVER, MPI_COMM_WORLD, &never));
    yields = misses = 0;
    long begun = read_ns(CLOCK_MONOTONIC), computed = read_ns(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < MISSES || (crowded && yields == 0 && read_ns(CLOCK_MONOTONIC) - begun < UNTIL_NS); i++)
        SAME(poll_once(way, &never, rank, NEVER), 0);
    long yielded = yields, missed = misses, most = 2 * ranks + (read_ns(CLOCK_MONOTONIC) - begun) / HOLD_NS;
    long poll_ns = (read_ns(CLOCK_PROCESS_CPUTIME_ID) - computed) / missed;
    /* No rank finalizes or sleeps before all ranks have finished polling. */
    for (int i = 0; i < STEPS; i++)
        step(way);
    if (crowded && yielded > most)
        fail(__LINE__, "%ld calls of sched_yield in %ld misses instead of at most %ld", yielded, missed, most);
    if (crowded && yielded == 0 && poll_ns < QUICK_NS)
        fail(__LINE__, "no call of sched_yield in %ld misses of %ld ns", missed, poll_ns);
    /* A single rank always has a processor. */
    if (ranks == 1 && yielded > missed / 100)
        fail(__LINE__, "%ld calls of sched_yield in %ld misses of a rank alone", yielded, missed);
    OK(MPI_Cancel(&never));
    OK(MPI_Wait(&never, MPI_STATUS_IGNORE));
    return finish();
}
