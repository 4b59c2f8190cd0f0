/* Runs pt2pt_soak.c in several concurrent threads of each rank (MPI_THREAD_MULTIPLE). Each thread has its own
 * communicators, or its own tags on common ones. Arguments: the first seed, rounds, threads (0: 2 to 6, by the seed).
 * test: ranks=2,3 timeout=120 args=1,2,0;2,2,0 */
#include "../soak.h"
#include <malloc.h>
#include <pthread.h>

enum { THREADS_MOST = 6 };

static struct soak soaks[THREADS_MOST];
static unsigned seed;
static int rounds, threads;

static void *run(void *argument)
{
    struct soak *s = argument;
    for (int round = 0; round < rounds && !__atomic_load_n(&failures, __ATOMIC_RELAXED); round++)
        run_round(s, round == rounds - 1);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t started[THREADS_MOST];
    int level;
    seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    rounds = argc > 2 ? atoi(argv[2]) : 2;
    threads = argc > 3 ? atoi(argv[3]) : 0;
    threads = threads ? threads : 2 + (int)(seed / 2 % 5);
    if (seed % 3 == 0)
        mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 30);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    CHECK(level == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MOST || threads > THREADS_MOST)
        return 4;
    OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    for (int t = 0; t < threads; t++) {
        struct soak *s = &soaks[t];
        s->plan = seed * 1000003ull + 31u * (unsigned)t, s->own = seed * 77777ull + 991u * (unsigned)t + (unsigned)rank;
        draw(&s->plan, 2), draw(&s->own, 2);
        s->shares = seed % 2;
        s->first_tag = s->shares ? t * 1000 : 0;
        s->number = seed % 100 * 10000 + 1000 * (unsigned)t;
        for (int i = 0; i < COMMS; i++)
            if (s->shares && t > 0)
                s->comms[i] = soaks[0].comms[i];
            else
                OK(MPI_Comm_dup(MPI_COMM_WORLD, &s->comms[i]));
    }
    for (int t = 1; t < threads; t++)
        if (pthread_create(&started[t], NULL, run, &soaks[t]))
            return 3;
    run(&soaks[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(started[t], NULL);
    for (int t = 0; t < (soaks[0].shares ? 1 : threads); t++)
        for (int i = 0; i < COMMS; i++)
            OK(MPI_Comm_free(&soaks[t].comms[i]));
    MPI_Finalize();
    for (int t = 0; t < threads && !failures; t++)
        check_freed(&soaks[t]);
    if (failures)
        fprintf(stderr, "rank %d: seed %u\n", rank, seed);
    return failures ? 1 : 0;
}
