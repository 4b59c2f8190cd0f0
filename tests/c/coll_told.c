/* test: ranks=2,4 only=build
   Each collective call ten times blocking, ten times nonblocking and ten times persistent, with blocks of four ints:
   on MPI_COMM_WORLD, with the neighbours of a ring, and, of those that it has, between two groups. For
   tests/jobs/collectives.py, which reads what the report says of them. */
#include "coll_check.h"

enum { N = 4, TIMES = 10, MOST = 8 };

static int send[MOST * N], recv[MOST * N], counts[MOST], displs[MOST], bytes[MOST];
static MPI_Datatype types[MOST];
static MPI_Aint places[MOST];

/* The three forms; the persistent one is started often. */
#define FORMS(x, i_x, ...)                                                            \
    do {                                                                              \
        MPI_Request request;                                                          \
        for (int i = 0; i < TIMES; i++)                                               \
            MPI_##x(__VA_ARGS__ comm);                                                \
        for (int i = 0; i < TIMES; i++) {                                             \
            MPI_##i_x(__VA_ARGS__ comm, &request);                                    \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                    \
        }                                                                             \
        MPI_##x##_init(__VA_ARGS__ comm, MPI_INFO_NULL, &request);                    \
        for (int i = 0; i < TIMES; i++) {                                             \
            MPI_Start(&request);                                                      \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                    \
        }                                                                             \
        MPI_Request_free(&request);                                                   \
    } while (0)

/* Those that intercommunicators have, too. */
static void make_calls(MPI_Comm comm, int root)
{
    FORMS(Barrier, Ibarrier, );
    FORMS(Bcast, Ibcast, recv, N, MPI_INT, root, );
    FORMS(Gather, Igather, send, N, MPI_INT, recv, N, MPI_INT, root, );
    FORMS(Gatherv, Igatherv, send, N, MPI_INT, recv, counts, displs, MPI_INT, root, );
    FORMS(Scatter, Iscatter, send, N, MPI_INT, recv, N, MPI_INT, root, );
    FORMS(Scatterv, Iscatterv, send, counts, displs, MPI_INT, recv, N, MPI_INT, root, );
    FORMS(Allgather, Iallgather, send, N, MPI_INT, recv, N, MPI_INT, );
    FORMS(Allgatherv, Iallgatherv, send, N, MPI_INT, recv, counts, displs, MPI_INT, );
    FORMS(Alltoall, Ialltoall, send, N, MPI_INT, recv, N, MPI_INT, );
    FORMS(Alltoallv, Ialltoallv, send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, );
    FORMS(Alltoallw, Ialltoallw, send, counts, bytes, types, recv, counts, bytes, types, );
    FORMS(Reduce, Ireduce, send, recv, N, MPI_INT, MPI_SUM, root, );
    FORMS(Allreduce, Iallreduce, send, recv, N, MPI_INT, MPI_SUM, );
    FORMS(Reduce_scatter, Ireduce_scatter, send, recv, counts, MPI_INT, MPI_SUM, );
    FORMS(Reduce_scatter_block, Ireduce_scatter_block, send, recv, N, MPI_INT, MPI_SUM, );
}

static void make_calls_with_neighbors(MPI_Comm comm)
{
    FORMS(Neighbor_allgather, Ineighbor_allgather, send, N, MPI_INT, recv, N, MPI_INT, );
    FORMS(Neighbor_allgatherv, Ineighbor_allgatherv, send, N, MPI_INT, recv, counts, displs, MPI_INT, );
    FORMS(Neighbor_alltoall, Ineighbor_alltoall, send, N, MPI_INT, recv, N, MPI_INT, );
    FORMS(Neighbor_alltoallv, Ineighbor_alltoallv, send, counts, displs, MPI_INT, recv, counts, displs, MPI_INT, );
    FORMS(Neighbor_alltoallw, Ineighbor_alltoallw, send, counts, places, types, recv, counts, places, types, );
}

int main(int argc, char **argv)
{
    int yes = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm comm = MPI_COMM_WORLD, half, inter, ring;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &ranks);
    CHECK(ranks <= MOST);
    for (int i = 0; i < MOST; i++) {
        counts[i] = N;
        displs[i] = N * i;
        places[i] = bytes[i] = N * i * (int)sizeof(int);
        types[i] = MPI_INT;
    }
    make_calls(comm, 0);
    FORMS(Scan, Iscan, send, recv, N, MPI_INT, MPI_SUM, );
    FORMS(Exscan, Iexscan, send, recv, N, MPI_INT, MPI_SUM, );

    MPI_Cart_create(comm, 1, &ranks, &yes, 0, &ring);
    make_calls_with_neighbors(ring);
    MPI_Comm_free(&ring);

    /* Between groups rank 0 is the root: of its own group it says so, the others name it. */
    MPI_Comm_split(comm, me % 2, me, &half);
    MPI_Intercomm_create(half, 0, comm, 1 - me % 2, 0, &inter);
    make_calls(inter, me == 0 ? MPI_ROOT : me % 2 == 0 ? MPI_PROC_NULL : 0);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
    return finish();
}
