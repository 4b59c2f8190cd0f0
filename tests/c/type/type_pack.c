/* MPI_Pack and MPI_Pack_external. Any number of ranks. */
#include "../check.h"

static void check_native(void)
{
    MPI_Datatype t;
    int in[12], out[12], size, position = 0, i;
    char packed[64];
    MPI_Type_vector(2, 2, 4, MPI_INT, &t);
    MPI_Type_commit(&t);
    for (i = 0; i < 12; i++)
        in[i] = i, out[i] = -1;
    MPI_Pack_size(2, t, MPI_COMM_WORLD, &size);
    CHECK(size >= 32 && size <= (int)sizeof packed);
    MPI_Pack(in, 2, t, packed, size, &position, MPI_COMM_WORLD);
    CHECK(position == 32);
    position = 0;
    MPI_Unpack(packed, size, &position, out, 2, t, MPI_COMM_WORLD);
    CHECK(position == 32);
    static const int expected[12] = {0, 1, -1, -1, 4, 5, 6, 7, -1, -1, 10, 11};
    CHECK(memcmp(out, expected, sizeof out) == 0);
    MPI_Type_free(&t);
}

static void check_external(void)
{
    const unsigned char big_endian[] = {0x12, 0x34, 0x56, 0x78, 0x3F, 0xF8, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE};
    unsigned char packed[32];
    MPI_Aint size, position = 0, total = 0;
    int i = 0x12345678, i_back = 0;
    double d = 1.5, d_back = 0;
    short s = -2, s_back = 0;
    MPI_Pack_external_size("external32", 1, MPI_INT, &size);
    total += size;
    MPI_Pack_external_size("external32", 1, MPI_DOUBLE, &size);
    total += size;
    MPI_Pack_external_size("external32", 1, MPI_SHORT, &size);
    total += size;
    CHECK(total == 14);
    MPI_Pack_external("external32", &i, 1, MPI_INT, packed, total, &position);
    MPI_Pack_external("external32", &d, 1, MPI_DOUBLE, packed, total, &position);
    MPI_Pack_external("external32", &s, 1, MPI_SHORT, packed, total, &position);
    CHECK(position == 14 && memcmp(packed, big_endian, 14) == 0);
    position = 0;
    MPI_Unpack_external("external32", packed, total, &position, &i_back, 1, MPI_INT);
    MPI_Unpack_external("external32", packed, total, &position, &d_back, 1, MPI_DOUBLE);
    MPI_Unpack_external("external32", packed, total, &position, &s_back, 1, MPI_SHORT);
    CHECK(i_back == i && d_back == d && s_back == s);

    long double l[] = {1.0L / 3, -1e-4000L, 0, 1e4000L}, l_back[4];
    unsigned char wide[64];
    position = 0;
    MPI_Pack_external("external32", l, 4, MPI_LONG_DOUBLE, wide, sizeof wide, &position);
    CHECK(position == 64);
    CHECK(wide[0] == 0x3F && wide[1] == 0xFD && wide[2] == 0x55 && wide[3] == 0x55);
    position = 0;
    MPI_Unpack_external("external32", wide, sizeof wide, &position, l_back, 4, MPI_LONG_DOUBLE);
    for (int n = 0; n < 4; n++)
        CHECK(l_back[n] == l[n]);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    check_native();
    check_external();
    return finish();
}
