/* Prints size, bounds and a checksum of the packed bytes of random datatypes, equal for every library.
 *
 *   layouts SEED COUNT
 *
 * Libraries must agree on these types. Two rules of the standard have two readings, and are left out. Whether a type
 * other than a structure is padded (section 5.1.6) matters only if a displacement is no multiple of the alignment, so
 * all are multiples of 16 bytes. Whether bound markers override parts without any (section 5.1.7) matters only if a
 * structure mixes both, so its parts have either all markers or none. No type is empty. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, PARTS_MAX = 4, MEMORY_MAX = 1 << 20 };

static uint64_t state;
static char recipe[1 << 16];
static size_t used;
static int has_long_double;

#define SAY(...) (used += (size_t)snprintf(recipe + used, sizeof recipe - used, __VA_ARGS__))

static const struct {
    const char *name;
    MPI_Datatype type;
} named[] = {
    {"char", MPI_CHAR},         {"short", MPI_SHORT},         {"int", MPI_INT},
    {"double", MPI_DOUBLE},     {"long_double", MPI_LONG_DOUBLE}, {"complex", MPI_C_DOUBLE_COMPLEX},
    {"short_int", MPI_SHORT_INT}, {"double_int", MPI_DOUBLE_INT}, {"long_double_int", MPI_LONG_DOUBLE_INT},
};

/* A random number from `low` to `high`. */
static int choose(int low, int high)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (int)((state >> 33) % (uint64_t)(high - low + 1));
}

static MPI_Datatype make(int depth, int may_mark);

/* Block lengths, at least one of them above 0, and displacements in elements and in bytes. */
struct blocks {
    int count, lengths[PARTS_MAX], at[PARTS_MAX];
    MPI_Aint bytes[PARTS_MAX];
};

static struct blocks choose_blocks(void)
{
    struct blocks b = {.count = choose(1, PARTS_MAX)};
    for (int i = 0; i < b.count; i++) {
        b.lengths[i] = choose(i == 0, 3);
        b.at[i] = choose(-4, 6);
        b.bytes[i] = choose(-20, 40) * UNIT;
        SAY("%d@%d/%ld ", b.lengths[i], b.at[i], (long)b.bytes[i]);
    }
    return b;
}

static MPI_Datatype make_struct(int depth, int may_mark)
{
    SAY("struct(");
    struct blocks b = choose_blocks();
    int marked = may_mark && choose(0, 1);
    MPI_Datatype parts[PARTS_MAX], made;
    for (int i = 0; i < b.count; i++) {
        MPI_Datatype part = make(depth - 1, marked);
        if (marked) {
            int lb = choose(-4, 4) * UNIT, extent = choose(1, 20) * UNIT;
            SAY(" from %d to %d", lb, lb + extent);
            MPI_Type_create_resized(part, lb, extent, &parts[i]);
            MPI_Type_free(&part);
        } else {
            parts[i] = part;
        }
        SAY(", ");
    }
    MPI_Type_create_struct(b.count, b.lengths, b.bytes, parts, &made);
    for (int i = 0; i < b.count; i++)
        MPI_Type_free(&parts[i]);
    return made;
}

/* The nonempty part of an array that one rank of a grid owns. */
static MPI_Datatype make_darray(int depth)
{
    enum { DIMS = 3 };
    int dims = choose(1, DIMS), sizes[DIMS], kinds[DIMS], lengths[DIMS], grid[DIMS], ranks = 1;
    int order = choose(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    SAY("darray(%d ", order == MPI_ORDER_C);
    for (int i = 0; i < dims; i++) {
        static const int all[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
        int kind = choose(0, 2), length = choose(1, 3);
        kinds[i] = all[kind];
        grid[i] = kind == 2 ? 1 : choose(1, 3);
        /* A block distribution must cover the whole array; a cyclic one may leave elements for further turns. */
        sizes[i] = grid[i] * length + (kind == 1 ? choose(0, 4) : 0);
        lengths[i] = kind == 2 ? MPI_DISTRIBUTE_DFLT_DARG : length;
        ranks *= grid[i];
        SAY("%d:%d:%d:%d ", sizes[i], kind, length, grid[i]);
    }
    int rank = choose(0, ranks - 1);
    SAY("of rank %d, ", rank);
    MPI_Datatype made, old = make(depth - 1, 1);
    MPI_Type_create_darray(ranks, rank, dims, sizes, kinds, lengths, grid, order, old, &made);
    MPI_Type_free(&old);
    return made;
}

static MPI_Datatype make_subarray(int depth)
{
    enum { DIMS = 3 };
    int dims = choose(1, DIMS), sizes[DIMS], parts[DIMS], starts[DIMS];
    int order = choose(0, 1) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    SAY("subarray(%d ", order == MPI_ORDER_C);
    for (int i = 0; i < dims; i++) {
        sizes[i] = choose(1, 4);
        parts[i] = choose(1, sizes[i]);
        starts[i] = choose(0, sizes[i] - parts[i]);
        SAY("%d:%d:%d ", sizes[i], parts[i], starts[i]);
    }
    MPI_Datatype made, old = make(depth - 1, 1);
    MPI_Type_create_subarray(dims, sizes, parts, starts, order, old, &made);
    MPI_Type_free(&old);
    return made;
}

/* One of the constructors that repeat a type. */
static MPI_Datatype make_repeated(int depth, int may_mark)
{
    int count = choose(1, 4), length = choose(1, 3), stride = choose(-4, 6);
    MPI_Aint bytes = choose(-20, 40) * UNIT;
    MPI_Datatype old, made;
    switch (choose(0, 2)) {
    case 0:
        SAY("contiguous(%d, ", count);
        old = make(depth - 1, may_mark);
        MPI_Type_contiguous(count, old, &made);
        break;
    case 1:
        SAY("vector(%d %d %d, ", count, length, stride);
        old = make(depth - 1, may_mark);
        MPI_Type_vector(count, length, stride, old, &made);
        break;
    default:
        SAY("hvector(%d %d %ld, ", count, length, (long)bytes);
        old = make(depth - 1, may_mark);
        MPI_Type_create_hvector(count, length, bytes, old, &made);
    }
    MPI_Type_free(&old);
    return made;
}

static MPI_Datatype make_indexed(int depth, int may_mark)
{
    int which = choose(0, 3), length = choose(1, 3);
    SAY("indexed%d(%d ", which, length);
    struct blocks b = choose_blocks();
    MPI_Datatype made, old = make(depth - 1, may_mark);
    if (which == 0)
        MPI_Type_indexed(b.count, b.lengths, b.at, old, &made);
    else if (which == 1)
        MPI_Type_create_hindexed(b.count, b.lengths, b.bytes, old, &made);
    else if (which == 2)
        MPI_Type_create_indexed_block(b.count, length, b.at, old, &made);
    else
        MPI_Type_create_hindexed_block(b.count, length, b.bytes, old, &made);
    MPI_Type_free(&old);
    return made;
}

static MPI_Datatype make_resized(int depth)
{
    MPI_Aint lb = choose(-30, 30), extent = choose(1, 200);
    SAY("resized(%ld %ld, ", (long)lb, (long)extent);
    MPI_Datatype made, old = make(depth - 1, 1);
    MPI_Type_create_resized(old, lb, extent, &made);
    MPI_Type_free(&old);
    return made;
}

/* A random type, without bound markers unless `may_mark` is set. */
static MPI_Datatype make(int depth, int may_mark)
{
    MPI_Datatype made;
    if (depth == 0 || choose(0, 6) == 0) {
        int which = choose(0, sizeof named / sizeof *named - 1);
        has_long_double |= strncmp(named[which].name, "long_double", 11) == 0;
        SAY("%s", named[which].name);
        MPI_Type_dup(named[which].type, &made);
        return made;
    }
    switch (choose(0, may_mark ? 7 : 4)) {
    case 0:
    case 1:
        made = make_repeated(depth, may_mark);
        break;
    case 2:
    case 3:
        made = make_indexed(depth, may_mark);
        break;
    case 4:
        made = make_struct(depth, may_mark);
        break;
    case 5:
        made = make_subarray(depth);
        break;
    case 6:
        made = make_darray(depth);
        break;
    default:
        made = make_resized(depth);
    }
    SAY(")");
    return made;
}

/* A checksum of the packed bytes and their positions. Some libraries pack only the 10 significant bytes of the 16 of
 * a long double. */
static uint32_t sum_packed(MPI_Datatype type, MPI_Aint true_lb, MPI_Aint true_extent, int size)
{
    static unsigned char memory[MEMORY_MAX], packed[MEMORY_MAX];
    if (has_long_double || true_extent > MEMORY_MAX || size > MEMORY_MAX)
        return 0;
    for (MPI_Aint i = 0; i < true_extent; i++)
        memory[i] = (unsigned char)((uint64_t)i * 2654435761u >> 11);
    int position = 0;
    MPI_Type_commit(&type);
    MPI_Pack((char *)memory - true_lb, 1, type, packed, MEMORY_MAX, &position, MPI_COMM_SELF);
    uint32_t sum = 2166136261u;
    for (int i = 0; i < position; i++)
        sum = (sum ^ packed[i]) * 16777619u;
    return sum;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    int count = argc > 2 ? atoi(argv[2]) : 1000;
    for (int i = 0; i < count; i++) {
        state = (seed + (uint64_t)i) * 0x9E3779B97F4A7C15u;
        used = 0;
        has_long_double = 0;
        MPI_Datatype type = make(choose(1, 4), 1);
        int size;
        MPI_Aint lb, extent, true_lb, true_extent;
        MPI_Type_size(type, &size);
        MPI_Type_get_extent(type, &lb, &extent);
        MPI_Type_get_true_extent(type, &true_lb, &true_extent);
        printf("%d: %d bytes, from %ld extent %ld, data from %ld extent %ld, packed %08x: %s\n", i, size, (long)lb,
               (long)extent, (long)true_lb, (long)true_extent, sum_packed(type, true_lb, true_extent, size), recipe);
        MPI_Type_free(&type);
    }
    MPI_Finalize();
    return 0;
}
