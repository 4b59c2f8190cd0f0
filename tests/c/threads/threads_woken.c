/* Threads sleep until their own message arrives. A thread that finds another thread's message wakes only that one, so a
 * message for one of many threads does not wake all. The leader may leave first or last.
 * test: ranks=2 timeout=120 env=FASTPATH_WAIT=sleep args=last;first */
#include "../check.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 12, ROUNDS = 100, WAITS = 10 };

static MPI_T_pvar_session session;
static MPI_T_pvar_handle sleeps, waits;

static void count(const char *name, MPI_T_pvar_handle *handle)
{
    int index, elements;
    OK(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_COUNTER, &index));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, handle, &elements));
    OK(MPI_T_pvar_start(session, *handle));
}

static long long read_count(MPI_T_pvar_handle handle)
{
    unsigned long long value = 0;
    OK(MPI_T_pvar_read(session, handle, &value));
    return (long long)value;
}

/* Waits for its own message, by a receive or by a request, and answers it. */
static void *wait_for_own(void *argument)
{
    int tag = WAITS + (int)(size_t)argument, in = -1;
    MPI_Status status;
    if (tag % 2) {
        OK(MPI_Recv(&in, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &status));
    } else {
        MPI_Request request;
        OK(MPI_Irecv(&in, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, &status));
    }
    STATUS(status, 0, tag, (int)sizeof(int));
    SAME(in, tag);
    OK(MPI_Send(&in, 1, MPI_INT, 0, tag, MPI_COMM_WORLD));
    return NULL;
}

static void echo(int tag)
{
    int value = -1;
    OK(MPI_Recv(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Send(&value, 1, MPI_INT, 0, tag, MPI_COMM_WORLD));
}

static void ask(int tag)
{
    int value = -1;
    OK(MPI_Send(&tag, 1, MPI_INT, 1, tag, MPI_COMM_WORLD));
    OK(MPI_Recv(&value, 1, MPI_INT, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    SAME(value, tag);
}

int main(int argc, char **argv)
{
    int provided, given;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    SAME(provided, MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &given));
    OK(MPI_T_pvar_session_create(&session));
    count("sleeps", &sleeps);
    count("waits", &waits);
    int first = argc > 1 && strcmp(argv[1], "first") == 0;
    if (rank == 0) {
        for (int round = 0; round < ROUNDS; round++) {
            usleep(300); /* Most of the time all threads are asleep after this. */
            ask(1);
        }
        for (int i = 0; i < THREADS; i++) ask(WAITS + (first ? i : THREADS - 1 - i));
    } else {
        for (int i = 0; i < THREADS; i++) SAME(pthread_create(&threads[i], NULL, wait_for_own, (void *)(size_t)i), 0);
        /* All threads wait, and this one has its first message. */
        while (read_count(waits) < THREADS) sched_yield();
        echo(1);
        long long before = read_count(sleeps);
        for (int round = 1; round < ROUNDS; round++) echo(1);
        long long slept = read_count(sleeps) - before;
        /* Only the leading thread and the receiving thread sleep for each message, each perhaps once more. */
        if (slept > 3 * ROUNDS) fail(__LINE__, "%lld sleeps for %d messages", slept, ROUNDS);
        for (int i = 0; i < THREADS; i++) SAME(pthread_join(threads[i], NULL), 0);
    }
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_finalize());
    return finish();
}
