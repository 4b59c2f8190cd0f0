/* test: ranks=1,2,3,4,5,8
   Every predefined operation on the predefined types it is defined for; it is rejected on other types. Any number of
   ranks. */
#include "../coll_check.h"
#include <complex.h>
#include <stdbool.h>

enum { N = 37 };

/* Small operands that differ between ranks and elements, and are sometimes 0. */
static int small(int r, int i)
{
    return (r * 5 + i * 3) % 7 - (i % 2 ? 3 : 0);
}

#define NAIVE(type, initial, update)         \
    type z = (type)small(0, i);              \
    (void)(initial);                         \
    for (int r = 1; r < ranks; r++) {        \
        type x = (type)small(r, i);          \
        update;                              \
    }

#define TEST(op, type, datatype, update)                                                   \
    do {                                                                                   \
        type own[N], res[N];                                                               \
        memset(own, 0, sizeof own);                                                        \
        for (int i = 0; i < N; i++)                                                        \
            own[i] = (type)small(me, i);                                                   \
        CHECK(MPI_Allreduce(own, res, N, datatype, op, MPI_COMM_WORLD) == MPI_SUCCESS);    \
        for (int i = 0; i < N; i++) {                                                      \
            NAIVE(type, 0, update)                                                         \
            CHECK(res[i] == z);                                                            \
        }                                                                                  \
    } while (0)

#define ARITHMETIC(type, datatype)                        \
    do {                                                  \
        TEST(MPI_SUM, type, datatype, z = z + x);         \
        TEST(MPI_PROD, type, datatype, z = z * x);        \
    } while (0)

#define ORDERED(type, datatype)                           \
    do {                                                  \
        ARITHMETIC(type, datatype);                       \
        TEST(MPI_MAX, type, datatype, z = x > z ? x : z); \
        TEST(MPI_MIN, type, datatype, z = x < z ? x : z); \
    } while (0)

#define LOGICAL(type, datatype)                           \
    do {                                                  \
        TEST(MPI_LAND, type, datatype, z = z && x);       \
        TEST(MPI_LOR, type, datatype, z = z || x);        \
        TEST(MPI_LXOR, type, datatype, z = !z != !x);     \
    } while (0)

#define BITWISE(type, datatype)                           \
    do {                                                  \
        TEST(MPI_BAND, type, datatype, z = z & x);        \
        TEST(MPI_BOR, type, datatype, z = z | x);         \
        TEST(MPI_BXOR, type, datatype, z = z ^ x);        \
    } while (0)

/* One rank alone combines nothing: its operand is returned unchanged, even if it is not a logical value. */
#define INTEGER(type, datatype)                           \
    do {                                                  \
        ORDERED(type, datatype);                          \
        BITWISE(type, datatype);                          \
        if (ranks > 1)                                    \
            LOGICAL(type, datatype);                      \
    } while (0)

#define PAIR(type, datatype)                                                                  \
    do {                                                                                      \
        struct {                                                                              \
            type value;                                                                       \
            int index;                                                                        \
        } own[N], top[N], low[N];                                                             \
        memset(own, 0, sizeof own);                                                           \
        for (int i = 0; i < N; i++) {                                                         \
            own[i].value = (type)small(me, i);                                                \
            own[i].index = 100 - me;                                                          \
        }                                                                                     \
        MPI_Allreduce(own, top, N, datatype, MPI_MAXLOC, MPI_COMM_WORLD);                     \
        MPI_Allreduce(own, low, N, datatype, MPI_MINLOC, MPI_COMM_WORLD);                     \
        for (int i = 0; i < N; i++) {                                                         \
            int max = small(0, i), min = max, at_max = 100, at_min = 100;                     \
            for (int r = 1; r < ranks; r++) {                                                 \
                int x = small(r, i);                                                          \
                if (x >= max)                                                                 \
                    max = x, at_max = 100 - r;                                                \
                if (x <= min)                                                                 \
                    min = x, at_min = 100 - r;                                                \
            }                                                                                 \
            CHECK(top[i].value == (type)max && top[i].index == at_max);                       \
            CHECK(low[i].value == (type)min && low[i].index == at_min);                       \
        }                                                                                     \
    } while (0)

static void test_refusals(void)
{
    char buffer[64] = {0}, other[64];
    struct {
        MPI_Op op;
        MPI_Datatype type;
    } wrong[] = {
        {MPI_SUM, MPI_BYTE},     {MPI_BAND, MPI_DOUBLE},   {MPI_MAX, MPI_C_DOUBLE_COMPLEX}, {MPI_MAXLOC, MPI_INT},
        {MPI_SUM, MPI_2INT},     {MPI_SUM, MPI_CHARACTER}, {MPI_LAND, MPI_DOUBLE},          {MPI_MIN, MPI_C_BOOL},
        {MPI_REPLACE, MPI_INT},  {MPI_NO_OP, MPI_INT},     {MPI_OP_NULL, MPI_INT},          {MPI_SUM, MPI_PACKED},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int code = MPI_Allreduce(buffer, other, 1, wrong[i].type, wrong[i].op, MPI_COMM_WORLD), class;
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_OP);
    }
    /* The ranks are still in step. */
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    INTEGER(signed char, MPI_SIGNED_CHAR);
    INTEGER(unsigned char, MPI_UNSIGNED_CHAR);
    INTEGER(char, MPI_CHAR);
    INTEGER(short, MPI_SHORT);
    INTEGER(unsigned short, MPI_UNSIGNED_SHORT);
    INTEGER(int, MPI_INT);
    INTEGER(unsigned, MPI_UNSIGNED);
    INTEGER(long, MPI_LONG);
    INTEGER(unsigned long, MPI_UNSIGNED_LONG);
    INTEGER(long long, MPI_LONG_LONG);
    INTEGER(unsigned long long, MPI_UNSIGNED_LONG_LONG);
    INTEGER(int8_t, MPI_INT8_T);
    INTEGER(int16_t, MPI_INT16_T);
    INTEGER(int32_t, MPI_INT32_T);
    INTEGER(int64_t, MPI_INT64_T);
    INTEGER(uint8_t, MPI_UINT8_T);
    INTEGER(uint16_t, MPI_UINT16_T);
    INTEGER(uint32_t, MPI_UINT32_T);
    INTEGER(uint64_t, MPI_UINT64_T);
    INTEGER(int, MPI_INTEGER);
    INTEGER(int8_t, MPI_INTEGER1);
    INTEGER(int16_t, MPI_INTEGER2);
    INTEGER(int32_t, MPI_INTEGER4);
    INTEGER(int64_t, MPI_INTEGER8);
    INTEGER(__int128, MPI_INTEGER16);
    INTEGER(MPI_Aint, MPI_AINT);
    INTEGER(MPI_Count, MPI_COUNT);
    INTEGER(MPI_Offset, MPI_OFFSET);

    ORDERED(float, MPI_FLOAT);
    ORDERED(double, MPI_DOUBLE);
    ORDERED(float, MPI_REAL);
    ORDERED(double, MPI_DOUBLE_PRECISION);
    ORDERED(float, MPI_REAL4);
    ORDERED(double, MPI_REAL8);
#ifdef __x86_64__
    ORDERED(long double, MPI_LONG_DOUBLE);
    ORDERED(__float128, MPI_REAL16);
    ARITHMETIC(long double complex, MPI_C_LONG_DOUBLE_COMPLEX);
    PAIR(long double, MPI_LONG_DOUBLE_INT);
#endif
    ARITHMETIC(float complex, MPI_C_FLOAT_COMPLEX);
    ARITHMETIC(double complex, MPI_C_DOUBLE_COMPLEX);
    ARITHMETIC(double complex, MPI_DOUBLE_COMPLEX);
    ARITHMETIC(float complex, MPI_COMPLEX8);

    LOGICAL(bool, MPI_C_BOOL);
    LOGICAL(bool, MPI_CXX_BOOL);
    BITWISE(unsigned char, MPI_BYTE);

    PAIR(float, MPI_FLOAT_INT);
    PAIR(double, MPI_DOUBLE_INT);
    PAIR(long, MPI_LONG_INT);
    PAIR(int, MPI_2INT);
    PAIR(short, MPI_SHORT_INT);

    test_refusals();
    return finish();
}
