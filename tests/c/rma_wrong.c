/* Does with a window what the argument names: a mistake that ends the job, or a wait that does not end.
 * test: only=build */
#include <mpi.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int rank, ranks, value = 1;
    void *base;
    char mine[64];
    MPI_Win win, other;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_name(win, "ledger");
    MPI_Win_create(mine, sizeof mine, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &other);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    if (strcmp(how, "range") == 0 && rank == 1) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Put(&value, 1, MPI_INT, 0, 16, 1, MPI_INT, win);
    } else if (strcmp(how, "epoch") == 0 && rank == 1) {
        MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    } else if (strcmp(how, "free") == 0 && rank == 1) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Win_free(&win);
    } else if (strcmp(how, "held") == 0) {
        /* Rank 0 keeps a lock and waits for a message of rank 1, which wants the lock. */
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    } else if (strcmp(how, "other") == 0 || strcmp(how, "all") == 0) {
        /* The same with a lock of rank 1's memory, which rank 1 itself wants, alone or with all. */
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (strcmp(how, "all") == 0)
            MPI_Win_lock_all(0, win);
        else
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    } else if (strcmp(how, "queue") == 0) {
        /* Two wait for rank 0's lock. Who gets it works on, and rank 0 waits for the other one. */
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Status status;
            sleep(1);
            MPI_Win_unlock(0, win);
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, MPI_COMM_WORLD, &status);
            MPI_Recv(&value, 1, MPI_INT, 3 - status.MPI_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Send(&value, 1, MPI_INT, 0, 8, MPI_COMM_WORLD);
        pause();
    } else if (strcmp(how, "entered") == 0) {
        /* Rank 0 is in MPI_Win_lock_all and waits for a message of rank 1, which wants a lock of its own memory. */
        if (rank == 0)
            MPI_Win_lock_all(0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
    } else if (strcmp(how, "post") == 0) {
        /* Rank 1 waits for a post that rank 0 never makes. */
        MPI_Group world;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        if (rank == 0)
            MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Win_start(world, 0, win);
    } else if (strcmp(how, "dies") == 0) {
        /* Rank 0 dies while it holds a lock that rank 1 wants. */
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0)
            _exit(9);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    } else if (strncmp(how, "ends", 4) == 0) {
        /* Rank 0 ends without having ended what rank 1 waits for. */
        MPI_Group world;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        int starts = strcmp(how, "ends_started") == 0;
        if (starts) MPI_Win_post(world, 0, win);
        if (rank == 0) {
            if (starts) MPI_Win_start(world, 0, win);
            else if (strcmp(how, "ends_entered") == 0) MPI_Win_lock_all(0, win);
            else MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1) {
            if (starts) {
                MPI_Win_start(world, 0, win);
                MPI_Win_complete(win);
                MPI_Win_wait(win);
            } else {
                MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
                MPI_Win_unlock(0, win);
            }
        }
        MPI_Group_free(&world);
    } else if (strcmp(how, "right") == 0) {
        int to = (rank + 1) % ranks;
        MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
        MPI_Win_lock(MPI_LOCK_SHARED, to, 0, other);
        MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, win);
        MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, other);
        MPI_Win_unlock(to, other);
        MPI_Win_unlock(to, win);
    } else if (strcmp(how, "counted") == 0) {
        /* Each rank's memory is accessed by one other. */
        int own[16] = {0}, to = (rank + 1) % ranks;
        MPI_Win_lock(MPI_LOCK_SHARED, to, 0, win);
        MPI_Put(&value, 1, MPI_INT, to, 0, 1, MPI_INT, win);
        MPI_Win_flush(to, win);
        MPI_Put(own, 64, MPI_BYTE, to, 0, 64, MPI_BYTE, win);
        MPI_Win_unlock(to, win);
        MPI_Win_lock_all(0, win);
        MPI_Accumulate(&value, 1, MPI_INT, to, 0, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_flush_all(win);
        MPI_Get(own, 1, MPI_INT, to, 1, 1, MPI_INT, win);
        MPI_Fetch_and_op(&value, own + 1, MPI_INT, to, 2, MPI_SUM, win);
        MPI_Win_unlock_all(win);
        MPI_Win_fence(MPI_MODE_NOPRECEDE, other);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, other);
    } else if (strncmp(how, "left", 4) == 0) {
        /* The program ends with an epoch open, or with windows that were not freed. */
        MPI_Group world;
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        if (strcmp(how, "left-all") == 0) {
            MPI_Win_lock_all(0, win);
        } else if (strcmp(how, "left-post") == 0) {
            MPI_Win_post(world, 0, win);
            MPI_Win_start(world, 0, win);
            MPI_Win_complete(win);
        } else if (strcmp(how, "left-fence") == 0) {
            MPI_Win_fence(0, win);
        }
        MPI_Group_free(&world);
    } else {
        MPI_Recv(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (strncmp(how, "left", 4) != 0 && strncmp(how, "ends", 4) != 0) {
        MPI_Win_free(&other);
        MPI_Win_free(&win);
    }
    MPI_Finalize();
    return 0;
}
