/* Processes are spawned repeatedly, more of them than FASTPATH_SPAWN_MAX. Ended processes release their capacity
 * (decision 0087). Messages both ways, then both sides disconnect.
 * test: ranks=1,2,3 timeout=120 args=60 env=FASTPATH_SPAWN_MAX=6 within=node */
#include "../check.h"
#include <signal.h>
#include <unistd.h>

#define LONG 300000

static char in[LONG], out[LONG];

/* Each process of one side sends a short and a long message to each process of the other side. */
static void exchange(MPI_Comm inter, int round, int is_child)
{
    int own, there;
    MPI_Comm_rank(inter, &own);
    MPI_Comm_remote_size(inter, &there);
    const int sizes[] = {8, LONG};
    for (int s = 0; s < 2; s++)
        for (int far = 0; far < there; far++) {
            unsigned mine = 1 + round * 100 + is_child * 50 + own * 5 + far;
            unsigned theirs = 1 + round * 100 + !is_child * 50 + far * 5 + own;
            MPI_Request request;
            MPI_Status status;
            fill(out, sizes[s], mine);
            OK(MPI_Isend(out, sizes[s], MPI_BYTE, far, 7, inter, &request));
            OK(MPI_Recv(in, sizes[s], MPI_BYTE, far, 7, inter, &status));
            STATUS(status, far, 7, sizes[s]);
            HOLDS(in, sizes[s], theirs);
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
}

/* A window over all processes of both sides, which each of them writes to. */
static void share(MPI_Comm inter, int is_child)
{
    MPI_Comm all;
    MPI_Win win;
    int own, size, *memory;
    OK(MPI_Intercomm_merge(inter, is_child, &all));
    MPI_Comm_rank(all, &own);
    MPI_Comm_size(all, &size);
    OK(MPI_Win_allocate(size * sizeof(int), sizeof(int), MPI_INFO_NULL, all, &memory, &win));
    for (int i = 0; i < size; i++)
        memory[i] = 0;
    OK(MPI_Win_fence(0, win));
    int value = own + 1;
    for (int to = 0; to < size; to++)
        OK(MPI_Put(&value, 1, MPI_INT, to, own, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < size; i++)
        SAME(memory[i], i + 1);
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_disconnect(&all));
}

static void run_child(MPI_Comm parent, int argc, char **argv)
{
    int round = atoi(argv[argc - 1]);
    exchange(parent, round, 1);
    if (round % 4 == 1)
        share(parent, 1);
    if (round % 4 == 2) {
        /* The child has a child of its own, which does the same. */
        char next[16], *words[] = {"spawned", next, NULL};
        MPI_Comm inter;
        snprintf(next, sizeof next, "%d", round + 1);
        OK(MPI_Comm_spawn(argv[0], words, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
        exchange(inter, round + 1, 0);
        MPI_Comm_disconnect(&inter);
    }
    OK(MPI_Comm_disconnect(&parent));
}

static void spawn(const char *program, int round, MPI_Comm comm)
{
    char number[16], *words[] = {"spawned", number, NULL};
    MPI_Comm inter;
    snprintf(number, sizeof number, "%d", round);
    OK(MPI_Comm_spawn(program, words, 2, MPI_INFO_NULL, 0, comm, &inter, MPI_ERRCODES_IGNORE));
    exchange(inter, round, 0);
    if (round % 4 == 1)
        share(inter, 0);
    OK(MPI_Comm_disconnect(&inter));
}

int main(int argc, char **argv)
{
    MPI_Comm parent, alone;
    MPI_Win win;
    volatile int *is_done, *memory;
    int unit;
    MPI_Aint size;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (parent != MPI_COMM_NULL) {
        run_child(parent, argc, argv);
        return finish();
    }
    /* Spawn from all ranks, from some of them, and from each alone. */
    for (int round = 0; round < 4; round++)
        spawn(argv[0], 4 * round, MPI_COMM_WORLD);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == 0, rank, &alone));
    for (int turn = 0; turn < ranks; turn++) {
        for (int round = 0; round < 4 && turn == rank; round++)
            spawn(argv[0], round, MPI_COMM_SELF);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* The other ranks make no MPI call meanwhile. */
    OK(MPI_Win_allocate_shared(rank == 0 ? sizeof(int) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_shared_query(win, 0, &size, &unit, &is_done));
    if (rank == 0)
        *is_done = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) {
        for (int round = 0, most = atoi(argv[1]); round < most; round++)
            spawn(argv[0], round % 2, alone);
        *is_done = 1;
    }
    while (!*is_done)
        usleep(1000);
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&alone));
    return finish();
}
