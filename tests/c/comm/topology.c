/* Cartesian and graph topologies.
 * test: ranks=1,2,3,4,6,8 */
#include "../comm_check.h"

static void test_cart(void)
{
    int dims[2] = {0, 0}, periods[2] = {1, 0}, coords[2], got[2], flags[2], other, status;
    MPI_Comm cart, row, point;
    MPI_Dims_create(ranks, 2, dims);
    CHECK(dims[0] * dims[1] == ranks && dims[0] >= dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &cart);
    MPI_Topo_test(cart, &status);
    CHECK(status == MPI_CART);
    MPI_Topo_test(MPI_COMM_WORLD, &status);
    CHECK(status == MPI_UNDEFINED);
    MPI_Cart_get(cart, 2, got, flags, coords);
    CHECK(got[0] == dims[0] && got[1] == dims[1] && flags[0] == 1 && flags[1] == 0);
    MPI_Cart_rank(cart, coords, &other);
    int own;
    MPI_Comm_rank(cart, &own);
    CHECK(other == own);

    /* Data shifted along each dimension comes from the neighbour given by the coordinates. */
    for (int axis = 0; axis < 2; axis++) {
        int source, dest, from[2], data = -1;
        MPI_Cart_shift(cart, axis, 1, &source, &dest);
        MPI_Sendrecv(&own, 1, MPI_INT, dest, 0, &data, 1, MPI_INT, source, 0, cart, MPI_STATUS_IGNORE);
        if (source == MPI_PROC_NULL) {
            CHECK(axis == 1 && coords[1] == 0 && data == -1);
        } else {
            MPI_Cart_coords(cart, data, 2, from);
            CHECK(data == source && from[1 - axis] == coords[1 - axis]);
            CHECK((from[axis] + 1) % dims[axis] == coords[axis]);
        }
    }
    int remain[2] = {0, 1}, count;
    MPI_Cart_sub(cart, remain, &row);
    MPI_Cartdim_get(row, &count);
    CHECK(count == 1);
    MPI_Comm_size(row, &count);
    CHECK(count == dims[1]);
    MPI_Comm_rank(row, &other);
    CHECK(other == coords[1]);
    RING(row, coords[0]);
    remain[1] = 0;
    MPI_Cart_sub(cart, remain, &point);
    MPI_Comm_size(point, &count);
    CHECK(count == 1);
    MPI_Cartdim_get(point, &count);
    CHECK(count == 0);

    MPI_Comm dup;
    MPI_Comm_dup(cart, &dup);
    MPI_Topo_test(dup, &status);
    CHECK(status == MPI_CART); /* a duplicate has the topology too */
    MPI_Comm_free(&dup);
    MPI_Comm_free(&point);
    MPI_Comm_free(&row);
    MPI_Comm_free(&cart);

    /* The grid is smaller than the communicator: the remaining ranks get MPI_COMM_NULL. */
    int one = 1, no = 0;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &one, &no, 0, &cart);
    CHECK((cart == MPI_COMM_NULL) == (rank > 0));
    if (cart != MPI_COMM_NULL)
        MPI_Comm_free(&cart);
    int too_many = ranks + 1;
    CLASS(MPI_Cart_create(MPI_COMM_WORLD, 1, &too_many, &no, 0, &cart), MPI_ERR_DIMS);
    /* A grid without processes: no communicator is created. */
    int none[2] = {2, 0}, straight[2] = {0, 0}, mapped = 0;
    MPI_Cart_map(MPI_COMM_WORLD, 2, none, straight, &mapped);
    CHECK(mapped == MPI_UNDEFINED);
    CLASS(MPI_Cart_create(MPI_COMM_WORLD, 2, none, straight, 0, &cart), MPI_ERR_DIMS);
    CLASS(MPI_Cartdim_get(MPI_COMM_WORLD, &count), MPI_ERR_TOPOLOGY);
    int bad[2] = {0, ranks + 1};
    CLASS(MPI_Dims_create(ranks, 2, bad), MPI_ERR_DIMS);
}

static void test_graph(void)
{
    int *index = malloc(ranks * sizeof(int)), *edges = malloc(2 * ranks * sizeof(int));
    int nodes, count, neighbors[2], status;
    MPI_Comm graph;
    for (int i = 0; i < ranks; i++) {
        index[i] = 2 * (i + 1);
        edges[2 * i] = (i + ranks - 1) % ranks;
        edges[2 * i + 1] = (i + 1) % ranks;
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &graph);
    MPI_Topo_test(graph, &status);
    CHECK(status == MPI_GRAPH);
    MPI_Graphdims_get(graph, &nodes, &count);
    CHECK(nodes == ranks && count == 2 * ranks);
    MPI_Graph_neighbors_count(graph, rank, &count);
    CHECK(count == 2);
    MPI_Graph_neighbors(graph, rank, 2, neighbors);
    CHECK(neighbors[0] == (rank + ranks - 1) % ranks && neighbors[1] == (rank + 1) % ranks);
    RING(graph, 40);
    MPI_Comm_free(&graph);
    free(index);
    free(edges);
}

static void test_dist_graph(void)
{
    /* Rank 0 describes a ring, in the direction of ascending ranks. */
    int n = rank == 0 ? ranks : 0, in, out, weighted, from, to, in_weight, out_weight;
    int *sources = malloc(ranks * sizeof(int)), *degrees = malloc(ranks * sizeof(int));
    int *destinations = malloc(ranks * sizeof(int)), *weights = malloc(ranks * sizeof(int));
    for (int i = 0; i < ranks; i++) {
        sources[i] = i;
        degrees[i] = 1;
        destinations[i] = (i + 1) % ranks;
        weights[i] = 100 + i;
    }
    MPI_Comm graph;
    MPI_Dist_graph_create(MPI_COMM_WORLD, n, sources, degrees, destinations, weights, MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && weighted);
    MPI_Dist_graph_neighbors(graph, 1, &from, &in_weight, 1, &to, &out_weight);
    CHECK(from == (rank + ranks - 1) % ranks && in_weight == 100 + from);
    CHECK(to == (rank + 1) % ranks && out_weight == 100 + rank);
    MPI_Comm_free(&graph);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && !weighted);
    RING(graph, 50);
    MPI_Comm_free(&graph);
    int beyond = ranks;
    CLASS(MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, 1, &beyond, MPI_UNWEIGHTED, 0,
                                                             NULL, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph), MPI_ERR_RANK);
    free(sources);
    free(degrees);
    free(destinations);
    free(weights);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    test_cart();
    test_graph();
    test_dist_graph();
    return finish();
}
