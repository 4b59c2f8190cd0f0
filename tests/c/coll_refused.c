/* test: ranks=1,2,3,4,8 mistakes=yes
   What nonblocking and persistent collectives refuse: wrong arguments at once, active requests that are freed, cancelled
   or started, and lengths that differ, through the request. Any number of ranks. */
#include "coll_check.h"

static int class_of(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

static void check_refused(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 1, other = 0;
    CHECK(class_of(MPI_Ibcast(&value, 1, MPI_INT, ranks, comm, &request)) == MPI_ERR_ROOT);
    CHECK(request == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Ibcast(&value, -1, MPI_INT, 0, comm, &request)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Iallreduce(&value, &other, 1, MPI_INT, MPI_OP_NULL, comm, &request)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Iallreduce(&value, &other, 1, MPI_DATATYPE_NULL, MPI_SUM, comm, &request)) == MPI_ERR_TYPE);
    CHECK(class_of(MPI_Ibarrier(comm, NULL)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Ibarrier(MPI_COMM_NULL, &request)) == MPI_ERR_COMM);
    MPI_Barrier(comm);
    /* Active: not to be freed, not to be cancelled. Rank 0 begins last, so that the others are active for sure. */
    if (ranks > 1) {
        if (me != 0) {
            MPI_Ibarrier(comm, &request);
            CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
            CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
            CHECK(request != MPI_REQUEST_NULL);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Ibarrier(comm, &request);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(request == MPI_REQUEST_NULL);
    }
    /* An inactive one may be freed, and not started twice while active. */
    MPI_Barrier_init(comm, MPI_INFO_NULL, &request);
    int flag = 0;
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    CHECK(flag && request != MPI_REQUEST_NULL);
    if (ranks > 1 && me != 0) {
        MPI_Start(&request);
        CHECK(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST);
        CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (ranks == 1 || me == 0)
        MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    /* Lengths that differ: an error on who notices it, from the call or its request. */
    if (ranks > 1) {
        int out[4] = { 0 };
        int code = MPI_Ibcast(out, me == 0 ? 4 : 2, MPI_INT, 0, comm, &request);
        if (code == MPI_SUCCESS)
            code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(me == 0 || class_of(code) == MPI_ERR_TRUNCATE);
        CHECK(request == MPI_REQUEST_NULL);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check_refused();
    return finish();
}
