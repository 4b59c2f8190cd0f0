/* test: ranks=1,2,3,4,8 timeout=240
   Neighborhood collectives in their three forms: on grids (also with one or two processes along a dimension),
   graphs, and distributed graphs with repeated edges and self-loops. Any number of ranks. */
#include "../coll_check.h"

enum { MOST = 64, FORMS = 3 };

/* A variable, so that the compiler does not warn that MPI_UNWEIGHTED is no address of an array. */
static int *volatile unweighted = MPI_UNWEIGHTED;

/* The neighbours of each rank, and the index of each edge on the other side. */
static int indegree, outdegree, sources[MOST], destinations[MOST], partner[MOST];

static void learn(MPI_Comm comm)
{
    int kind;
    MPI_Topo_test(comm, &kind);
    int own, size;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    if (kind == MPI_CART) {
        int dims;
        MPI_Cartdim_get(comm, &dims);
        indegree = outdegree = 2 * dims;
        for (int d = 0; d < dims; d++)
            MPI_Cart_shift(comm, d, 1, &sources[2 * d], &sources[2 * d + 1]);
        memcpy(destinations, sources, sizeof sources);
        for (int i = 0; i < indegree; i++)
            partner[i] = i ^ 1;
        return;
    }
    if (kind == MPI_GRAPH) {
        MPI_Graph_neighbors_count(comm, own, &indegree);
        MPI_Graph_neighbors(comm, own, MOST, sources);
        outdegree = indegree;
        memcpy(destinations, sources, sizeof sources);
    } else {
        int weighted;
        MPI_Dist_graph_neighbors_count(comm, &indegree, &outdegree, &weighted);
        MPI_Dist_graph_neighbors(comm, indegree, sources, unweighted, outdegree, destinations, unweighted);
    }
    int mine[MOST + 1], *all = malloc(size * (MOST + 1) * sizeof *all);
    mine[0] = outdegree;
    memcpy(mine + 1, destinations, sizeof destinations);
    MPI_Allgather(mine, MOST + 1, MPI_INT, all, MOST + 1, MPI_INT, comm);
    for (int i = 0; i < indegree; i++) {
        int nth = 0;
        for (int j = 0; j < i; j++)
            nth += sources[j] == sources[i];
        const int *theirs = all + sources[i] * (MOST + 1);
        partner[i] = -1;
        for (int j = 0; j < theirs[0]; j++)
            if (theirs[j + 1] == own && nth-- == 0)
                partner[i] = j;
        CHECK(partner[i] >= 0);
    }
    free(all);
}

/* Number of elements on an edge. Both ends know the edge's index on the sender's side. */
static int on_edge(int from, int place, int count)
{
    return (from + place) % 3 == 0 ? 0 : count + place % 2;
}

#define MAKE(x, large_x, ...)                                                                             \
    (form == 0 ? MPI_Neighbor_##x##large_x(__VA_ARGS__, comm)                                             \
     : form == 1 ? MPI_Ineighbor_##x##large_x(__VA_ARGS__, comm, &request)                                \
                 : MPI_Neighbor_##x##_init##large_x(__VA_ARGS__, comm, MPI_INFO_NULL, &request))
#define CALL(x, ...) (large ? MAKE(x, _c, __VA_ARGS__) : MAKE(x, , __VA_ARGS__))
#define CALLV(x, one, other) (large ? MAKE(x, _c, other) : MAKE(x, , one))
#define ARGS(...) __VA_ARGS__

static void finish_call(int form, MPI_Request *request)
{
    if (form == 1) {
        MPI_Wait(request, MPI_STATUS_IGNORE);
        CHECK(*request == MPI_REQUEST_NULL);
    }
    if (form == 2)
        for (int start = 0; start < 3; start++) {
            MPI_Start(request);
            MPI_Wait(request, MPI_STATUS_IGNORE);
        }
    if (form == 2)
        MPI_Request_free(request);
}

static void check_even(MPI_Comm comm, int own, int count, int form, int large)
{
    long n = count ? count : 1;
    int *out = ints((outdegree + 1) * n, 0), *into = ints(indegree * n, -1);
    MPI_Request request = MPI_REQUEST_NULL;
    fill(out, own, 7, count);
    CHECK(!CALL(allgather, out, count, MPI_INT, into, count, MPI_INT));
    finish_call(form, &request);
    for (int i = 0; i < indegree; i++)
        CHECK(sources[i] == MPI_PROC_NULL ? all_are(into + i * count, -1, count) : holds(into + i * count, sources[i], 7, count));
    for (int j = 0; j < outdegree; j++)
        fill(out + j * count, own, j, count);
    CHECK(!CALL(alltoall, out, count, MPI_INT, into, count, MPI_INT));
    finish_call(form, &request);
    for (int i = 0; i < indegree; i++)
        CHECK(sources[i] == MPI_PROC_NULL ? all_are(into + i * count, -1, count)
                                          : holds(into + i * count, sources[i], partner[i], count));
    free(out);
    free(into);
}

static void check_uneven(MPI_Comm comm, int own, int count, int form, int large)
{
    int room = count + 3;
    int *out = ints((long)outdegree * room, 0), *into = ints((long)indegree * room, -1);
    int sc[MOST], sd[MOST], rc[MOST], rd[MOST];
    MPI_Count scc[MOST], rcc[MOST];
    MPI_Aint sdc[MOST], rdc[MOST], sb[MOST], rb[MOST];
    MPI_Datatype st[MOST], rt[MOST], pair;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Type_contiguous(1, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    for (int j = 0; j < outdegree; j++) {
        scc[j] = sc[j] = on_edge(own, j, count);
        sdc[j] = sd[j] = (outdegree - 1 - j) * room;
        sb[j] = sd[j] * (MPI_Aint)sizeof(int);
        st[j] = j % 2 ? pair : MPI_INT;
        fill(out + sd[j], own, j, sc[j]);
    }
    for (int i = 0; i < indegree; i++) {
        rcc[i] = rc[i] = sources[i] == MPI_PROC_NULL ? 1 : on_edge(sources[i], partner[i], count);
        rdc[i] = rd[i] = (indegree - 1 - i) * room;
        rb[i] = rd[i] * (MPI_Aint)sizeof(int);
        rt[i] = i % 2 ? MPI_INT : pair;
    }
    CHECK(!CALLV(alltoallv, ARGS(out, sc, sd, MPI_INT, into, rc, rd, MPI_INT), ARGS(out, scc, sdc, MPI_INT, into, rcc, rdc, MPI_INT)));
    finish_call(form, &request);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < indegree; i++) {
            CHECK(sources[i] == MPI_PROC_NULL ? into[rd[i]] == -1 : holds(into + rd[i], sources[i], partner[i], rc[i]));
            int used = sources[i] == MPI_PROC_NULL ? 0 : rc[i];
            CHECK(all_are(into + rd[i] + used, -1, room - used));
        }
        if (round)
            break;
        for (long i = 0; i < (long)indegree * room; i++)
            into[i] = -1;
        CHECK(!CALLV(alltoallw, ARGS(out, sc, sb, st, into, rc, rb, rt), ARGS(out, scc, sb, st, into, rcc, rb, rt)));
        if (form == 1)
            MPI_Type_free(&pair);
        finish_call(form, &request);
    }
    if (form != 1)
        MPI_Type_free(&pair);
    /* The number of elements that each rank sends depends on its rank. */
    int mine = own % 3 * count;
    long each = 2L * count + 1;
    int *all = ints(indegree * each, -1), *own_data = ints(mine, 0);
    fill(own_data, own, 9, mine);
    for (int i = 0; i < indegree; i++) {
        rcc[i] = rc[i] = sources[i] == MPI_PROC_NULL ? 0 : sources[i] % 3 * count;
        rdc[i] = rd[i] = (int)((indegree - 1 - i) * each);
    }
    CHECK(!CALLV(allgatherv, ARGS(own_data, mine, MPI_INT, all, rc, rd, MPI_INT), ARGS(own_data, mine, MPI_INT, all, rcc, rdc, MPI_INT)));
    finish_call(form, &request);
    for (int i = 0; i < indegree; i++)
        CHECK(holds(all + rd[i], sources[i], 9, rc[i]) && all_are(all + rd[i] + rc[i], -1, each - rc[i]));
    free(out);
    free(into);
    free(all);
    free(own_data);
}

static void check(MPI_Comm comm)
{
    static const int counts[] = { 0, 1, 5, 300, 20000 };
    int own;
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_rank(comm, &own);
    learn(comm);
    for (int form = 0; form < FORMS; form++)
        for (int large = 0; large < 2; large++)
            for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
                check_even(comm, own, counts[i], form, large);
                check_uneven(comm, own, counts[i], form, large);
            }
    /* Two calls outstanding at once. */
    int in[2] = { own, own + 1000 }, out[2][MOST];
    MPI_Request both[2];
    for (int k = 0; k < 2; k++)
        MPI_Ineighbor_allgather(&in[k], 1, MPI_INT, out[k], 1, MPI_INT, comm, &both[k]);
    MPI_Wait(&both[1], MPI_STATUS_IGNORE);
    MPI_Wait(&both[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < indegree; i++)
        CHECK(sources[i] == MPI_PROC_NULL || (out[0][i] == sources[i] && out[1][i] == sources[i] + 1000));
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm comm;
    for (int dims = 1; dims <= 3; dims++)
        for (int periodic = 0; periodic < 2; periodic++) {
            int sizes[3] = { 0 }, periods[3] = { periodic, periodic, !periodic };
            MPI_Dims_create(ranks, dims, sizes);
            MPI_Cart_create(MPI_COMM_WORLD, dims, sizes, periods, 0, &comm);
            check(comm);
        }
    /* A ring of repeated edges, with a self-loop on each node. */
    int *index = malloc(ranks * sizeof *index), *edges = malloc(5 * ranks * sizeof *edges);
    for (int r = 0; r < ranks; r++) {
        int *of = edges + 5 * r;
        of[0] = (r + 1) % ranks, of[1] = (r + ranks - 1) % ranks, of[2] = r;
        of[3] = (r + ranks - 1) % ranks, of[4] = (r + 1) % ranks;
        index[r] = 5 * (r + 1);
    }
    MPI_Graph_create(MPI_COMM_WORLD, ranks, index, edges, 0, &comm);
    check(comm);
    /* Each rank sends to all higher ranks, twice to the next one, and to itself. Rank 0 receives only from itself. */
    int from[MOST], to[MOST], in = 0, out = 0;
    for (int r = 0; r < me; r++)
        from[in++] = r;
    if (me > 0)
        from[in++] = me - 1;
    from[in++] = me;
    to[out++] = me;
    for (int r = ranks - 1; r > me; r--)
        to[out++] = r;
    if (me + 1 < ranks)
        to[out++] = me + 1;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, in, from, unweighted, out, to, unweighted, MPI_INFO_NULL, 0, &comm);
    check(comm);
    /* A graph without edges. */
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, from, unweighted, 0, to, unweighted, MPI_INFO_NULL, 0, &comm);
    check(comm);
    MPI_Request request;
    int code, class;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Neighbor_allgather(&me, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TOPOLOGY);
    code = MPI_Ineighbor_alltoall(&me, 1, MPI_INT, from, 1, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TOPOLOGY && request == MPI_REQUEST_NULL);
    free(index);
    free(edges);
    return finish();
}
