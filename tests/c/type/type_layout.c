/* Sizes, extents, names and element counts of datatypes, as the standard defines them. Any number of ranks. */
#include "../check.h"
#include <stddef.h>

/* The deprecated forms are tested too. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void expect_extent(int line, MPI_Datatype type, int size, MPI_Aint lb, MPI_Aint extent, MPI_Aint true_lb,
                          MPI_Aint true_extent)
{
    int got_size;
    MPI_Count size_c, size_x, lb_c, extent_c;
    MPI_Aint got_lb, got_extent, got_true_lb, got_true_extent;
    MPI_Type_size(type, &got_size);
    MPI_Type_size_c(type, &size_c);
    MPI_Type_size_x(type, &size_x);
    MPI_Type_get_extent(type, &got_lb, &got_extent);
    MPI_Type_get_extent_c(type, &lb_c, &extent_c);
    MPI_Type_get_true_extent(type, &got_true_lb, &got_true_extent);
    if (got_size != size || size_c != size || size_x != size || got_lb != lb || got_extent != extent || lb_c != lb ||
        extent_c != extent || got_true_lb != true_lb || got_true_extent != true_extent) {
        fprintf(stderr, "%s:%d: size %d lb %ld extent %ld true %ld %ld\n", __FILE__, line, got_size, (long)got_lb,
                (long)got_extent, (long)got_true_lb, (long)got_true_extent);
        failures++;
    }
}

#define EXPECT(type, ...) expect_extent(__LINE__, type, __VA_ARGS__)

struct record {
    char tag;
    double value[2];
    int index;
};

#define NAMED(type, size, extent) {type, #type, size, extent}

/* Every named type of the ABI, with the name that MPICH and Open MPI return on 64-bit Linux where two are
 * equivalent. */
static void check_named(void)
{
    static const struct {
        MPI_Datatype type;
        const char *name;
        int size;
        int extent;
    } named[] = {
        NAMED(MPI_AINT, 8, 8), NAMED(MPI_COUNT, 8, 8), NAMED(MPI_OFFSET, 8, 8), NAMED(MPI_PACKED, 1, 1),
        NAMED(MPI_SHORT, 2, 2), NAMED(MPI_INT, 4, 4), NAMED(MPI_LONG, 8, 8), NAMED(MPI_LONG_LONG_INT, 8, 8),
        NAMED(MPI_UNSIGNED_SHORT, 2, 2), NAMED(MPI_UNSIGNED, 4, 4), NAMED(MPI_UNSIGNED_LONG, 8, 8),
        NAMED(MPI_UNSIGNED_LONG_LONG, 8, 8), NAMED(MPI_FLOAT, 4, 4), NAMED(MPI_C_COMPLEX, 8, 8),
        NAMED(MPI_CXX_FLOAT_COMPLEX, 8, 8), NAMED(MPI_DOUBLE, 8, 8), NAMED(MPI_C_DOUBLE_COMPLEX, 16, 16),
        NAMED(MPI_CXX_DOUBLE_COMPLEX, 16, 16), NAMED(MPI_LOGICAL, 4, 4), NAMED(MPI_INTEGER, 4, 4),
        NAMED(MPI_REAL, 4, 4), NAMED(MPI_COMPLEX, 8, 8), NAMED(MPI_DOUBLE_PRECISION, 8, 8),
        NAMED(MPI_CHARACTER, 1, 1), NAMED(MPI_LONG_DOUBLE, 16, 16), NAMED(MPI_C_LONG_DOUBLE_COMPLEX, 32, 32),
        NAMED(MPI_CXX_LONG_DOUBLE_COMPLEX, 32, 32), NAMED(MPI_C_BOOL, 1, 1), NAMED(MPI_CXX_BOOL, 1, 1),
        NAMED(MPI_WCHAR, 4, 4), NAMED(MPI_INT8_T, 1, 1), NAMED(MPI_UINT8_T, 1, 1), NAMED(MPI_CHAR, 1, 1),
        NAMED(MPI_SIGNED_CHAR, 1, 1), NAMED(MPI_UNSIGNED_CHAR, 1, 1), NAMED(MPI_BYTE, 1, 1), NAMED(MPI_INT16_T, 2, 2),
        NAMED(MPI_UINT16_T, 2, 2), NAMED(MPI_INT32_T, 4, 4), NAMED(MPI_UINT32_T, 4, 4), NAMED(MPI_INT64_T, 8, 8),
        NAMED(MPI_UINT64_T, 8, 8), NAMED(MPI_DOUBLE_COMPLEX, 16, 16), NAMED(MPI_LOGICAL1, 1, 1),
        NAMED(MPI_INTEGER1, 1, 1), NAMED(MPI_LOGICAL2, 2, 2), NAMED(MPI_INTEGER2, 2, 2), NAMED(MPI_LOGICAL4, 4, 4),
        NAMED(MPI_INTEGER4, 4, 4), NAMED(MPI_REAL4, 4, 4), NAMED(MPI_LOGICAL8, 8, 8), NAMED(MPI_INTEGER8, 8, 8),
        NAMED(MPI_REAL8, 8, 8), NAMED(MPI_COMPLEX8, 8, 8), NAMED(MPI_LOGICAL16, 16, 16), NAMED(MPI_INTEGER16, 16, 16),
        NAMED(MPI_REAL16, 16, 16), NAMED(MPI_COMPLEX16, 16, 16), NAMED(MPI_COMPLEX32, 32, 32),
        NAMED(MPI_FLOAT_INT, 8, 8), NAMED(MPI_2INT, 8, 8), NAMED(MPI_2REAL, 8, 8),
        NAMED(MPI_2DOUBLE_PRECISION, 16, 16), NAMED(MPI_2INTEGER, 8, 8),
        NAMED(MPI_DOUBLE_INT, 12, 16), NAMED(MPI_LONG_INT, 12, 16), NAMED(MPI_SHORT_INT, 6, 8),
        NAMED(MPI_LONG_DOUBLE_INT, 20, 32),
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        char name[MPI_MAX_OBJECT_NAME];
        int length, integers, addresses, types, combiner;
        /* Pairs have padding before or after the index. */
        int end = strcmp(named[i].name, "MPI_SHORT_INT") == 0 ? 8 : named[i].size;
        MPI_Type_get_name(named[i].type, name, &length);
        MPI_Type_get_envelope(named[i].type, &integers, &addresses, &types, &combiner);
        if (strcmp(name, named[i].name) != 0 || length != (int)strlen(name) || combiner != MPI_COMBINER_NAMED)
            fail(__LINE__, "%s is called %s, combiner %d", named[i].name, name, combiner);
        EXPECT(named[i].type, named[i].size, 0, named[i].extent, 0, end);
    }
    CHECK(sizeof(long double) == 16);
    /* Synonyms are one type. */
    CHECK(MPI_LONG_LONG == MPI_LONG_LONG_INT && MPI_C_FLOAT_COMPLEX == MPI_C_COMPLEX);
}

static void check_derived(void)
{
    MPI_Datatype t, u;
    MPI_Type_contiguous(5, MPI_INT, &t);
    EXPECT(t, 20, 0, 20, 0, 20);
    MPI_Type_free(&t);
    CHECK(t == MPI_DATATYPE_NULL);

    MPI_Type_vector(3, 2, 4, MPI_INT, &t);
    EXPECT(t, 24, 0, 40, 0, 40);
    /* A derived type is unaffected when the type from which it was derived is freed. */
    MPI_Type_contiguous(2, t, &u);
    MPI_Type_free(&t);
    EXPECT(u, 48, 0, 80, 0, 80);
    MPI_Type_free(&u);

    MPI_Type_vector(3, 1, -2, MPI_DOUBLE, &t);
    EXPECT(t, 24, -32, 40, -32, 40);
    MPI_Type_free(&t);

    MPI_Aint stride = 64;
    MPI_Type_create_hvector(2, 3, stride, MPI_SHORT, &t);
    EXPECT(t, 12, 0, 70, 0, 70);
    MPI_Type_create_resized(t, -8, 128, &u);
    EXPECT(u, 12, -8, 128, 0, 70);
    MPI_Type_free(&t);
    MPI_Type_dup(u, &t);
    EXPECT(t, 12, -8, 128, 0, 70);
    MPI_Type_free(&t);
    MPI_Type_free(&u);

    int lengths[] = {1, 0, 3}, places[] = {5, 100, 1};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &t);
    EXPECT(t, 16, 4, 20, 4, 20);
    MPI_Type_free(&t);

    struct record r;
    MPI_Aint at[] = {offsetof(struct record, tag), offsetof(struct record, value), offsetof(struct record, index)};
    MPI_Datatype parts[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
    int counts[] = {1, 2, 1};
    MPI_Type_create_struct(3, counts, at, parts, &t);
    EXPECT(t, 21, 0, sizeof r, 0, offsetof(struct record, index) + 4);
    MPI_Type_free(&t);

    int sizes[] = {4, 6}, subsizes[] = {2, 3}, starts[] = {1, 2};
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_C, MPI_INT, &t);
    EXPECT(t, 24, 0, 96, 32, 36);
    MPI_Type_free(&t);
    MPI_Type_create_subarray(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, MPI_INT, &t);
    EXPECT(t, 24, 0, 96, 36, 40);
    MPI_Type_free(&t);

    MPI_Type_contiguous(0, MPI_INT, &t);
    EXPECT(t, 0, 0, 0, 0, 0);
    MPI_Type_free(&t);
}

/* A type ends no earlier than its last part including padding. */
static void check_padding(void)
{
    MPI_Datatype inner, outer, padded;
    /* The data spans 2 * 25 + 16 = 66 bytes, padded to 68. */
    MPI_Type_create_hvector(3, 4, 25, MPI_INT, &inner);
    EXPECT(inner, 48, 0, 68, 0, 66);
    MPI_Type_create_hvector(2, 3, 273, inner, &outer);
    /* 273 + 3 * 68 = 477, rounded up to whole integers. */
    EXPECT(outer, 288, 0, 480, 0, 273 + 2 * 68 + 66);
    MPI_Type_free(&outer);
    MPI_Type_free(&inner);

    int lengths[] = {1, 1};
    MPI_Aint at[] = {0, 8}, odd[] = {0, 17};
    MPI_Datatype parts[] = {MPI_DOUBLE, MPI_CHAR};
    MPI_Type_create_struct(2, lengths, at, parts, &padded);
    EXPECT(padded, 9, 0, 16, 0, 9);
    MPI_Datatype both[] = {MPI_CHAR, padded};
    MPI_Type_create_struct(2, lengths, odd, both, &outer);
    EXPECT(outer, 10, 0, 40, 0, 26);
    MPI_Type_free(&outer);
    MPI_Type_create_hindexed_block(2, 1, odd, padded, &outer);
    EXPECT(outer, 18, 0, 40, 0, 26);
    MPI_Type_free(&outer);
    /* Bound markers alone determine the extent. */
    MPI_Type_create_resized(padded, 0, 9, &inner);
    MPI_Type_create_hvector(2, 1, 13, inner, &outer);
    EXPECT(outer, 18, 0, 22, 0, 22);
    MPI_Type_free(&outer);
    MPI_Type_free(&inner);
    MPI_Type_free(&padded);
}

static void check_large(void)
{
    MPI_Datatype t;
    int size;
    MPI_Count size_c, lb, extent;
    MPI_Type_contiguous_c((MPI_Count)1 << 40, MPI_DOUBLE, &t);
    MPI_Type_size(t, &size);
    MPI_Type_size_c(t, &size_c);
    MPI_Type_get_extent_c(t, &lb, &extent);
    CHECK(size == MPI_UNDEFINED);
    CHECK(size_c == (MPI_Count)1 << 43 && lb == 0 && extent == size_c);
    MPI_Type_free(&t);
    MPI_Type_vector_c((MPI_Count)1 << 33, 3, (MPI_Count)1 << 20, MPI_BYTE, &t);
    MPI_Type_size_c(t, &size_c);
    MPI_Type_get_extent_c(t, &lb, &extent);
    CHECK(size_c == (MPI_Count)3 << 33);
    CHECK(extent == ((((MPI_Count)1 << 33) - 1) << 20) + 3);
    MPI_Type_free(&t);
}

static void check_names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Datatype t;
    MPI_Type_get_name(MPI_DOUBLE, name, &length);
    CHECK(strcmp(name, "MPI_DOUBLE") == 0 && length == 10);
    MPI_Type_contiguous(2, MPI_INT, &t);
    MPI_Type_get_name(t, name, &length);
    CHECK(length == 0 && name[0] == 0);
    MPI_Type_set_name(t, "pair of ints");
    MPI_Type_get_name(t, name, &length);
    CHECK(strcmp(name, "pair of ints") == 0 && length == 12);
    MPI_Type_free(&t);
}

static void check_counts(void)
{
    MPI_Datatype t;
    MPI_Status status;
    int count;
    MPI_Count count_c;
    MPI_Aint at[] = {0, 8};
    MPI_Datatype parts[] = {MPI_INT, MPI_DOUBLE};
    int lengths[] = {1, 2};
    MPI_Type_create_struct(2, lengths, at, parts, &t);
    MPI_Type_commit(&t);
    memset(&status, 0, sizeof status);
    MPI_Status_set_elements(&status, t, 5);
    MPI_Get_elements(&status, t, &count);
    CHECK(count == 5);
    MPI_Get_elements_c(&status, t, &count_c);
    CHECK(count_c == 5);
    MPI_Get_count(&status, t, &count);
    CHECK(count == MPI_UNDEFINED);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == 32);
    MPI_Status_set_elements(&status, t, 6);
    MPI_Get_count(&status, t, &count);
    CHECK(count == 2);
    MPI_Type_free(&t);
}

static void check_queries(void)
{
    MPI_Datatype t, u;
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &t);
    int size;
    MPI_Type_size(t, &size);
    CHECK(size == 8);
    MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &t);
    CHECK(t == MPI_DOUBLE_INT);
    MPI_Type_get_value_index(MPI_INT, MPI_DOUBLE, &t);
    CHECK(t == MPI_DATATYPE_NULL);
    MPI_Type_create_f90_real(15, 300, &t);
    MPI_Type_create_f90_real(15, 300, &u);
    CHECK(t == u);
    MPI_Type_size(t, &size);
    CHECK(size == 8);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    check_named();
    check_derived();
    check_padding();
    check_large();
    check_names();
    check_counts();
    check_queries();
    return finish();
}
