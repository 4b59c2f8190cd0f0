/* Threads create and free communicators at the same time, each thread from a communicator of its own. A callback of
 * the program waits for a lock whose owner calls MPI, as the callbacks of interpreters do.
 * test: ranks=1,2,3,4 timeout=120 */
#include "../comm_check.h"
#include <pthread.h>
#include <sched.h>

enum { THREADS = 4, ROUNDS = 60 };

static void *work(void *argument)
{
    MPI_Comm own = *(MPI_Comm *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Comm dup, part, made;
        MPI_Group group;
        MPI_Comm_dup(own, &dup);
        MPI_Comm_split(dup, rank % 2, -rank, &part);
        RING(part, round);
        MPI_Comm_group(dup, &group);
        MPI_Comm_create_group(own, group, round, &made);
        RING(made, round + 1);
        MPI_Group_free(&group);
        MPI_Comm_free(&made);
        MPI_Comm_free(&part);
        MPI_Comm_free(&dup);
    }
    return NULL;
}

static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;
static int calls, passed; /* callbacks below: entered and finished */

static void pass_interpreter(void)
{
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&interpreter);
    pthread_mutex_unlock(&interpreter);
    __atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
}

static int on_copy(MPI_Comm comm, int key, void *extra, void *value, void *to, int *flag)
{
    (void)comm, (void)key, (void)extra;
    *(void **)to = value;
    *flag = 1;
    pass_interpreter();
    return MPI_SUCCESS;
}

static int on_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key, (void)value, (void)extra;
    pass_interpreter();
    return MPI_SUCCESS;
}

/* Holds the lock until a callback of the program waits for it, and calls MPI meanwhile. */
static void *interpret(void *argument)
{
    pthread_barrier_t *began = argument;
    for (int call = 1; call <= 3; call++) {
        MPI_Info info;
        pthread_mutex_lock(&interpreter);
        if (call == 1)
            pthread_barrier_wait(began);
        while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) < call)
            sched_yield();
        MPI_Info_create(&info);
        MPI_Info_free(&info);
        pthread_mutex_unlock(&interpreter);
        while (__atomic_load_n(&passed, __ATOMIC_SEQ_CST) < call)
            sched_yield();
    }
    return NULL;
}

static void check_interpreter(void)
{
    int key, value = 1;
    MPI_Comm one, two;
    pthread_t thread;
    pthread_barrier_t began;
    pthread_barrier_init(&began, NULL, 2);
    OK(MPI_Comm_create_keyval(on_copy, on_delete, &key, NULL));
    OK(MPI_Comm_dup(MPI_COMM_SELF, &one));
    OK(MPI_Comm_set_attr(one, key, &value));
    pthread_create(&thread, NULL, interpret, &began);
    pthread_barrier_wait(&began);
    OK(MPI_Comm_dup(one, &two));
    OK(MPI_Comm_free(&one));
    OK(MPI_Comm_free(&two));
    pthread_join(thread, NULL);
    SAME(calls, 3);
    OK(MPI_Comm_free_keyval(&key));
}

int main(int argc, char **argv)
{
    int provided;
    pthread_t threads[THREADS];
    MPI_Comm comms[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, &comms[i]);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        MPI_Comm_free(&comms[i]);
    }
    check_interpreter();
    return finish();
}
