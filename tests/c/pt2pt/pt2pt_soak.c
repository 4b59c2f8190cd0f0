/* Random messages by all calls, of all sizes up to 4 MiB, with every byte checked (soak.h). Arguments: the first seed,
 * rounds. The seed determines the thread level, the attached buffer, and whether the heap returns memory to the system.
 * test: ranks=2,3,5 timeout=120 args=1,4 */
#include "../soak.h"
#include <malloc.h>

int main(int argc, char **argv)
{
    static struct soak s;
    static const int levels[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    int rounds = argc > 2 ? atoi(argv[2]) : 4, level, size = 2 * ROUND_BYTES;
    void *buffer = MPI_BUFFER_AUTOMATIC;
    if (seed % 3 == 0) /* freed memory is reused at once, and never unmapped */
        mallopt(M_MMAP_THRESHOLD, 1 << 30), mallopt(M_TRIM_THRESHOLD, 1 << 30);
    MPI_Init_thread(&argc, &argv, levels[seed % 4], &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > RANKS_MOST)
        return 4;
    s.plan = seed * 1000003ull, s.own = seed * 77777ull + (unsigned)rank;
    s.number = seed % 1000 * 1000;
    draw(&s.plan, 2), draw(&s.own, 2);
    if (seed % 2)
        buffer = allocate((size_t)size);
    OK(MPI_Buffer_attach(buffer, seed % 2 ? size : 0));
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &s.comms[i]));
    for (int round = 0; round < rounds && !failures; round++) {
        run_round(&s, round == rounds - 1);
        if (failures)
            fprintf(stderr, "rank %d: seed %u, round %d\n", rank, seed, round);
    }
    for (int i = 0; i < COMMS; i++)
        OK(MPI_Comm_free(&s.comms[i]));
    MPI_Finalize();
    if (!failures)
        check_freed(&s);
    if (failures)
        fprintf(stderr, "rank %d: seed %u\n", rank, seed);
    return failures ? 1 : 0;
}
