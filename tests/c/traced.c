/* Messages of every way between two ranks, for a trace. With `kill` rank 1 is killed while rank 0 waits for it, with
 * `multiple` threads may call.
 * test: only=build */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Returns once that process sleeps in the kernel. */
static void await_sleeper(int process)
{
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    while (state != 'S') {
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%*[^)]) %c", &state) != 1)
            abort();
        fclose(file);
    }
}

/* A second thread, which has a track of its own. */
static void *talk_to_itself(void *unused)
{
    int out = 1, into = 0;
    MPI_Sendrecv(&out, 1, MPI_INT, 0, 0, &into, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    return unused;
}

int main(int argc, char **argv)
{
    static const int sizes[] = {8, 4096, 20000, 1 << 20};
    int level, multiple = argc > 1 && !strcmp(argv[1], "multiple"), kill = argc > 1 && !strcmp(argv[1], "kill");
    MPI_Init_thread(&argc, &argv, multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned char *data = allocate(1 << 20);
    for (int round = 0; round < 20; round++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            if (rank % 2 == 0 && rank + 1 < ranks) {
                MPI_Send(data, sizes[s], MPI_BYTE, rank + 1, 5, MPI_COMM_WORLD);
                MPI_Recv(data, sizes[s], MPI_BYTE, rank + 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else if (rank % 2 == 1) {
                MPI_Recv(data, sizes[s], MPI_BYTE, rank - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(data, sizes[s], MPI_BYTE, rank - 1, 6, MPI_COMM_WORLD);
            }
        }
    if (multiple) {
        pthread_t thread;
        pthread_create(&thread, NULL, talk_to_itself, NULL);
        pthread_join(thread, NULL);
    }
    /* From whoever sends first: one looks at everything for that. */
    int other = rank ^ 1, word = rank;
    if (other < ranks) {
        MPI_Send(&word, 1, MPI_INT, other, 8, MPI_COMM_WORLD);
        MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (kill && rank == 1) {
        /* Once this is there, nothing but its receive lets rank 0 sleep. */
        MPI_Recv(&word, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        await_sleeper(word);
        raise(SIGKILL);
    }
    if (kill) {
        word = getpid();
        MPI_Send(&word, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
        MPI_Recv(data, 1, MPI_BYTE, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    free(data);
    return finish();
}
