/* Ends with a fatal error of the kind that the argument names, on rank 1; the others wait for it.
 * test: only=build */
#include <mpi.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int rank, size, value = 0;
    if (strcmp(how, "early") == 0)
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(how, "early_type") == 0)
        MPI_Type_size(MPI_DOUBLE, &size);
    MPI_Session session;
    if (strcmp(how, "session") == 0) {
        /* There is no world model, and nobody has set an error handler. */
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strncmp(how, "late", 4) == 0) {
        MPI_Finalize();
        if (strcmp(how, "late_session") == 0)
            MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        if (strcmp(how, "late_type") == 0)
            MPI_Type_size(MPI_DOUBLE, &size);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
    }
    if (strcmp(how, "hang") == 0) {
        /* Each waits on a communicator of another kind. */
        MPI_Comm half, named;
        MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &half);
        MPI_Comm_dup(MPI_COMM_WORLD, &named);
        MPI_Comm_set_name(named, "halo exchange");
        MPI_Comm comms[3] = {MPI_COMM_WORLD, half, named};
        MPI_Recv(&value, 1, MPI_INT, (rank + 1) % size, 3, comms[rank % 3], MPI_STATUS_IGNORE);
    }
    MPI_Comm inter;
    if (strcmp(how, "root") == 0 && rank == 2)
        MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1, 3, &inter);
    if (rank == 1) {
        if (strcmp(how, "rank") == 0)
            MPI_Send(&value, 1, MPI_INT, size, 3, MPI_COMM_WORLD);
        if (strcmp(how, "named") == 0) {
            MPI_Comm_set_name(MPI_COMM_WORLD, "the one with a name");
            MPI_Recv(&value, 1, MPI_INT, size, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
        if (strcmp(how, "overlap") == 0)
            MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1, 3, &inter);
        if (strcmp(how, "root") == 0) {
            MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 2, 3, &inter);
            MPI_Bcast(&value, 1, MPI_INT, 1, inter);
        }
        if (strcmp(how, "init") == 0) {
            MPI_Request request;
            MPI_Bcast_init(&value, 1, MPI_INT, size, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        }
        if (strncmp(how, "left", 4) == 0) {
            /* The others join no barrier, but leave once it is under way. */
            MPI_Request request;
            MPI_Ibarrier(MPI_COMM_WORLD, &request);
            for (int peer = 0; peer < size; peer += 2)
                MPI_Send(&value, 1, MPI_INT, peer, 3, MPI_COMM_WORLD);
            /* It is known to have failed before MPI_Finalize begins. */
            for (int flag = strcmp(how, "left_seen") != 0; !flag;)
                MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            MPI_Finalize();
        }
        if (strcmp(how, "range") == 0) {
            MPI_Request request;
            MPI_Psend_init(&value, 6, 0, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
            MPI_Start(&request);
            MPI_Pready_range(5, 2, request);
        }
        if (strcmp(how, "ready") == 0) {
            MPI_Request request;
            MPI_Psend_init(&value, 1, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
            MPI_Pready(0, request);
        }
        if (strcmp(how, "free") == 0) {
            MPI_Comm world = MPI_COMM_WORLD;
            MPI_Comm_free(&world);
        }
        if (strcmp(how, "twice") == 0) {
            MPI_Request request;
            MPI_Recv_init(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, &request);
            MPI_Start(&request);
            MPI_Start(&request);
        }
        if (strcmp(how, "abort") == 0)
            MPI_Abort(MPI_COMM_WORLD, 7);
        if (strcmp(how, "call") == 0)
            MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_COMM);
    }
    if (strncmp(how, "unjoined", 8) == 0) {
        /* All are in MPI_Finalize, with a call each that the others have not begun. */
        static char data[1 << 20];
        MPI_Comm comms[2];
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
        if (strcmp(how, "unjoined_send") == 0)
            MPI_Ibcast(data, sizeof data, MPI_BYTE, rank, comms[rank % 2], &request);
        else if (strcmp(how, "unjoined_start") == 0) {
            MPI_Barrier_init(comms[0], MPI_INFO_NULL, &request);
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Ibarrier(comms[1], &request);
            else
                MPI_Start(&request);
        } else
            MPI_Ibarrier(comms[rank % 2], &request);
        MPI_Finalize();
        return 0;
    }
    if (strncmp(how, "left", 4) == 0 && rank != 1) {
        MPI_Recv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Finalize();
        return 0;
    }
    MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return 0;
}
