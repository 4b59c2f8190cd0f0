/* The functions of mpi-ext.h in a job that does not tolerate failures: agreement, shrinking and revocation work, no rank
 * has failed. New communicators get messages of agreements before all members have made them.
 * test: ranks=1,2,3,4,8 */
#include "../check.h"
#include <mpi-ext.h>

static void agree(MPI_Comm comm)
{
    int flag = ~(1 << rank), all = ~((1 << ranks) - 1);
    MPI_Request request;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == all);
    flag = ~(1 << rank);
    CHECK(MPIX_Comm_iagree(comm, &flag, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag == all);
}

int main(int argc, char **argv)
{
    int *is_on, found, is_revoked, count, same;
    MPI_Comm comm, next;
    MPI_Group failed;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &is_on, &found);
    CHECK(found && *is_on == 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < 20; round++) {
        MPI_Request request = MPI_REQUEST_NULL;
        agree(comm);
        if (round % 2)
            CHECK(MPIX_Comm_shrink(comm, &next) == MPI_SUCCESS);
        else
            CHECK(MPIX_Comm_ishrink(comm, &next, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
        agree(next);
        MPI_Comm_compare(comm, next, &same);
        CHECK(same == MPI_CONGRUENT);
        MPI_Comm_free(&comm);
        comm = next;
    }
    CHECK(MPIX_Comm_get_failed(comm, &failed) == MPI_SUCCESS);
    MPI_Group_size(failed, &count);
    CHECK(count == 0);
    MPI_Group_free(&failed);
    CHECK(MPIX_Comm_ack_failed(comm, ranks, &count) == MPI_SUCCESS && count == 0);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (rank == 0)
        CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    else
        CHECK(class_of(MPI_Recv(NULL, 0, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_is_revoked(comm, &is_revoked) == MPI_SUCCESS && is_revoked);
    agree(comm);
    CHECK(MPIX_Comm_shrink(comm, &next) == MPI_SUCCESS && MPI_Barrier(next) == MPI_SUCCESS);
    MPI_Comm_free(&next);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return failures != 0;
}
