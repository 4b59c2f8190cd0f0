/* Envelopes and contents of datatypes, by both interfaces. Any number of ranks. */
#include "../check.h"

/* The arguments after `combiner`: the numbers of integers, addresses and datatypes, then the integers and addresses. */
static void expect_contents(int line, MPI_Datatype type, int combiner, ...)
{
    int ni, na, nd, got, i;
    int integers[64];
    MPI_Aint addresses[64];
    MPI_Datatype types[64];
    va_list expected;
    MPI_Type_get_envelope(type, &ni, &na, &nd, &got);
    MPI_Type_get_contents(type, ni, na, nd, integers, addresses, types);
    va_start(expected, combiner);
    int bad = got != combiner;
    bad |= va_arg(expected, int) != ni;
    bad |= va_arg(expected, int) != na;
    bad |= va_arg(expected, int) != nd;
    for (i = 0; !bad && i < ni; i++)
        bad |= va_arg(expected, int) != integers[i];
    for (i = 0; !bad && i < na; i++)
        bad |= va_arg(expected, int) != addresses[i];
    va_end(expected);
    for (i = 0; i < nd; i++) {
        int a, b, c;
        MPI_Type_get_envelope(types[i], &a, &b, &c, &got);
        if (got != MPI_COMBINER_NAMED)
            MPI_Type_free(&types[i]);
    }
    if (bad) {
        fprintf(stderr, "%s:%d: combiner %d, %d integers, %d addresses, %d types\n", __FILE__, line, got, ni, na, nd);
        failures++;
    }
}

#define EXPECT(type, ...) expect_contents(__LINE__, type, __VA_ARGS__)

static void check_small(void)
{
    MPI_Datatype v, t;
    int ni, na, nd, combiner;
    MPI_Type_get_envelope(MPI_INT, &ni, &na, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_NAMED && ni == 0 && na == 0 && nd == 0);

    MPI_Type_vector(3, 2, 4, MPI_INT, &v);
    EXPECT(v, MPI_COMBINER_VECTOR, 3, 0, 1, 3, 2, 4);
    MPI_Type_contiguous(7, v, &t);
    EXPECT(t, MPI_COMBINER_CONTIGUOUS, 1, 0, 1, 7);
    /* Twice: freeing the returned handles must not affect the type. */
    EXPECT(t, MPI_COMBINER_CONTIGUOUS, 1, 0, 1, 7);
    MPI_Type_free(&t);
    MPI_Type_dup(v, &t);
    EXPECT(t, MPI_COMBINER_DUP, 0, 0, 1);
    MPI_Type_free(&t);
    MPI_Type_create_hvector(3, 2, 100, v, &t);
    EXPECT(t, MPI_COMBINER_HVECTOR, 2, 1, 1, 3, 2, 100);
    MPI_Type_free(&t);
    MPI_Type_create_resized(v, -4, 400, &t);
    EXPECT(t, MPI_COMBINER_RESIZED, 0, 2, 1, -4, 400);
    MPI_Type_free(&t);

    int lengths[] = {1, 2}, places[] = {3, 0};
    MPI_Aint at[] = {30, 0};
    MPI_Datatype types[] = {MPI_CHAR, v};
    MPI_Type_indexed(2, lengths, places, v, &t);
    EXPECT(t, MPI_COMBINER_INDEXED, 5, 0, 1, 2, 1, 2, 3, 0);
    MPI_Type_free(&t);
    MPI_Type_create_hindexed(2, lengths, at, v, &t);
    EXPECT(t, MPI_COMBINER_HINDEXED, 3, 2, 1, 2, 1, 2, 30, 0);
    MPI_Type_free(&t);
    MPI_Type_create_indexed_block(2, 5, places, v, &t);
    EXPECT(t, MPI_COMBINER_INDEXED_BLOCK, 4, 0, 1, 2, 5, 3, 0);
    MPI_Type_free(&t);
    MPI_Type_create_hindexed_block(2, 5, at, v, &t);
    EXPECT(t, MPI_COMBINER_HINDEXED_BLOCK, 2, 2, 1, 2, 5, 30, 0);
    MPI_Type_free(&t);
    MPI_Type_create_struct(2, lengths, at, types, &t);
    EXPECT(t, MPI_COMBINER_STRUCT, 3, 2, 2, 2, 1, 2, 30, 0);
    MPI_Type_free(&t);
    int sizes[] = {4, 5}, subsizes[] = {2, 3}, starts[] = {1, 0};
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &t);
    EXPECT(t, MPI_COMBINER_SUBARRAY, 8, 0, 1, 2, 4, 5, 2, 3, 1, 0, MPI_ORDER_C);
    MPI_Type_free(&t);
    int distribs[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC}, dargs[] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
    int psizes[] = {2, 3};
    MPI_Type_create_darray(6, 4, 2, sizes, distribs, dargs, psizes, MPI_ORDER_FORTRAN, MPI_INT, &t);
    EXPECT(t, MPI_COMBINER_DARRAY, 12, 0, 1, 6, 4, 2, 4, 5, MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC,
           MPI_DISTRIBUTE_DFLT_DARG, 2, 2, 3, MPI_ORDER_FORTRAN);
    MPI_Type_free(&t);
    MPI_Type_create_f90_integer(9, &t);
    EXPECT(t, MPI_COMBINER_F90_INTEGER, 1, 0, 0, 9);
    MPI_Type_free(&v);
}

static void check_large(void)
{
    MPI_Datatype t, types[1];
    MPI_Count ni, na, nc, nd, counts[8];
    MPI_Aint addresses[1];
    int combiner, integers[4];

    MPI_Type_create_hvector_c(3, 2, (MPI_Count)1 << 40, MPI_INT, &t);
    MPI_Type_get_envelope_c(t, &ni, &na, &nc, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_HVECTOR && ni == 0 && na == 0 && nc == 3 && nd == 1);
    MPI_Type_get_contents_c(t, ni, na, nc, nd, integers, addresses, counts, types);
    CHECK(counts[0] == 3 && counts[1] == 2 && counts[2] == (MPI_Count)1 << 40 && types[0] == MPI_INT);
    MPI_Type_free(&t);

    MPI_Count sizes[] = {4, 5}, subsizes[] = {2, 3}, starts[] = {1, 0};
    MPI_Type_create_subarray_c(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &t);
    MPI_Type_get_envelope_c(t, &ni, &na, &nc, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_SUBARRAY && ni == 2 && na == 0 && nc == 6 && nd == 1);
    MPI_Type_get_contents_c(t, ni, na, nc, nd, integers, addresses, counts, types);
    CHECK(integers[0] == 2 && integers[1] == MPI_ORDER_C && counts[0] == 4 && counts[3] == 3 && counts[4] == 1);
    MPI_Type_free(&t);

    /* The large-count query of a type made by the small form. */
    MPI_Type_vector(3, 2, 4, MPI_INT, &t);
    MPI_Type_get_envelope_c(t, &ni, &na, &nc, &nd, &combiner);
    CHECK(combiner == MPI_COMBINER_VECTOR && ni == 3 && na == 0 && nc == 0 && nd == 1);
    MPI_Type_free(&t);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    check_small();
    check_large();
    return finish();
}
