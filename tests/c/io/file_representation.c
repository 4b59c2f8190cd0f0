/* User-defined data representations: callbacks get the right arguments, views follow the sizes in the file, and
 * errors are returned. "external32" with types whose size differs from memory. */
/* test: ranks=1,2,3 */
#include "file_check.h"
#include <stdint.h>

static MPI_File file;
static MPI_Status status;
static char path[200];
static int wrongs, reads, writes, fails;

/* In the file an int takes 8 bytes, big-endian; a double takes its native size, a byte one byte. */
static int bytes_in_file(MPI_Datatype datatype)
{
    return datatype == MPI_INT ? 8 : datatype == MPI_DOUBLE ? 8 : 1;
}

static int extent_of(MPI_Datatype datatype, MPI_Aint *extent, void *extra)
{
    wrongs += extra != &wrongs;
    *extent = bytes_in_file(datatype);
    return MPI_SUCCESS;
}

/* Offset and type of item `i` of the elements of a datatype: ints with gaps, or a double and an int. */
static MPI_Datatype gappy, mixed;
static char *item(char *user, MPI_Datatype datatype, MPI_Offset i, MPI_Datatype *type)
{
    *type = MPI_INT;
    if (datatype == MPI_INT)
        return user + 4 * i;
    if (datatype == gappy)
        return user + i / 2 * 20 + i % 2 * 12;
    if (datatype != mixed)
        wrongs++;
    *type = i % 2 ? MPI_INT : MPI_DOUBLE;
    return user + i / 2 * 16 + i % 2 * 8;
}

static int convert(void *user, MPI_Datatype datatype, MPI_Count count, char *in_file, MPI_Offset position, void *extra,
                   int is_read)
{
    wrongs += extra != &wrongs;
    if (fails)
        return 77;
    for (MPI_Count i = 0; i < count; i++) {
        MPI_Datatype type;
        char *at = item(user, datatype, position + i, &type);
        unsigned char *bytes = (unsigned char *)in_file;
        if (type == MPI_DOUBLE) {
            memcpy(is_read ? at : in_file, is_read ? in_file : at, 8);
        } else if (is_read) {
            int64_t wide = 0;
            for (int b = 0; b < 8; b++)
                wide = (int64_t)((uint64_t)wide << 8 | bytes[b]);
            int value = (int)wide;
            memcpy(at, &value, 4);
        } else {
            int value;
            memcpy(&value, at, 4);
            for (int b = 0; b < 8; b++)
                bytes[b] = (unsigned char)((uint64_t)(int64_t)value >> (56 - 8 * b));
        }
        in_file += bytes_in_file(type);
    }
    return MPI_SUCCESS;
}

static int read_wide(void *user, MPI_Datatype datatype, int count, void *in_file, MPI_Offset position, void *extra)
{
    reads += count;
    return convert(user, datatype, count, in_file, position, extra, 1);
}

static int write_wide(void *user, MPI_Datatype datatype, int count, void *in_file, MPI_Offset position, void *extra)
{
    writes += count;
    return convert(user, datatype, count, in_file, position, extra, 0);
}

static int read_large(void *user, MPI_Datatype datatype, MPI_Count count, void *in_file, MPI_Offset position,
                      void *extra)
{
    return convert(user, datatype, count, in_file, position, extra, 1);
}

static int write_large(void *user, MPI_Datatype datatype, MPI_Count count, void *in_file, MPI_Offset position,
                       void *extra)
{
    return convert(user, datatype, count, in_file, position, extra, 0);
}

static void test_names(void)
{
    CLASS(MPI_Register_datarep("native", read_wide, write_wide, extent_of, &wrongs), MPI_ERR_DUP_DATAREP);
    CLASS(MPI_Register_datarep("external32", read_wide, write_wide, extent_of, &wrongs), MPI_ERR_DUP_DATAREP);
    CLASS(MPI_Register_datarep("", read_wide, write_wide, extent_of, &wrongs), MPI_ERR_ARG);
    CLASS(MPI_Register_datarep("none", read_wide, write_wide, NULL, &wrongs), MPI_ERR_ARG);
    OK(MPI_Register_datarep("wide", read_wide, write_wide, extent_of, &wrongs));
    CLASS(MPI_Register_datarep("wide", read_wide, write_wide, extent_of, &wrongs), MPI_ERR_DUP_DATAREP);
    OK(MPI_Register_datarep_c("large", read_large, write_large, extent_of, &wrongs));
    OK(MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, &wrongs));
    CLASS(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "thin", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
}

/* The view of each rank selects every n-th int. */
static void test_ints(const char *name, MPI_Datatype memory, int is_collective)
{
    MPI_Datatype tile;
    MPI_Aint extent;
    char told[MPI_MAX_DATAREP_STRING + 1];
    int out[50], in[50], count = 20, got, step = memory == MPI_INT ? 1 : 0;
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_set_size(file, 0));
    MPI_Type_create_subarray(1, (int[]){ranks}, (int[]){1}, (int[]){rank}, MPI_ORDER_C, MPI_INT, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, 16, MPI_INT, tile, name, MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    SAME(extent, 8);
    OK(MPI_File_get_type_extent(file, tile, &extent));
    SAME(extent, 8 * ranks);
    MPI_Offset disp, place;
    MPI_Datatype etype, filetype;
    OK(MPI_File_get_view(file, &disp, &etype, &filetype, told));
    CHECK(strcmp(told, name) == 0 && etype == MPI_INT);
    MPI_Type_free(&filetype);
    OK(MPI_File_get_byte_offset(file, 3, &place));
    SAME(place, 16 + 8 * (3 * ranks + rank));
    memset(out, 0, sizeof out);
    for (int i = 0; i < count; i++)
        out[step ? i : i / 2 * 5 + i % 2 * 3] = -1000 * rank - i;
    int elements = step ? count : count / 2;
    if (is_collective)
        OK(MPI_File_write_at_all(file, 1, out, elements, memory, &status));
    else
        OK(MPI_File_write_at(file, 1, out, elements, memory, &status));
    MPI_Get_count(&status, memory, &got);
    SAME(got, elements);
    meet();
    memset(in, 0, sizeof in);
    /* The file holds at most one element more than `elements`. */
    if (is_collective)
        OK(MPI_File_read_at_all(file, 1, in, elements, memory, &status));
    else
        OK(MPI_File_read_at(file, 1, in, elements, memory, &status));
    MPI_Get_count(&status, memory, &got);
    SAME(got, elements);
    CHECK(memcmp(in, out, sizeof in) == 0);
    MPI_Request request;
    memset(in, 0, sizeof in);
    OK(MPI_File_iread_at_all(file, 1, in, elements, memory, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    unsigned char bytes[8];
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < count; i++) {
            int64_t value = 0;
            OK(MPI_File_read_at(file, 16 + 8 * ((1 + i) * ranks + r), bytes, 8, MPI_BYTE, &status));
            for (int b = 0; b < 8; b++)
                value = (int64_t)((uint64_t)value << 8 | bytes[b]);
            SAME(value, -1000 * r - i);
        }
    MPI_Type_free(&tile);
    meet();
}

static void test_mixed(void)
{
    struct { double a; int b, rest; } out[6] = {{0}}, in[6];
    OK(MPI_File_set_size(file, 0));
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "wide", MPI_INFO_NULL));
    for (int i = 0; i < 6; i++) {
        out[i].a = rank + i / 8.;
        out[i].b = 100 * rank - i;
    }
    MPI_Count size;
    MPI_Type_size_c(mixed, &size);
    SAME(size, 12);
    OK(MPI_File_write_at_all(file, 96 * rank, out, 6, mixed, &status));
    MPI_Offset length;
    meet();
    OK(MPI_File_get_size(file, &length));
    SAME(length, 96 * ranks);
    memset(in, 0, sizeof in);
    OK(MPI_File_read_at(file, 96 * rank, in, 6, mixed, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    meet();
}

static void test_failure(void)
{
    int one = 1;
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "wide", MPI_INFO_NULL);
    fails = 1;
    CLASS(MPI_File_write_at(file, 0, &one, 1, MPI_INT, &status), MPI_ERR_CONVERSION);
    fails = rank == ranks - 1;
    CLASS(MPI_File_write_at_all(file, rank, &one, 1, MPI_INT, &status), MPI_ERR_CONVERSION);
    fails = 0;
    OK(MPI_File_write_at_all(file, rank, &one, 1, MPI_INT, &status));
    /* Without callbacks the bytes are unchanged. */
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "plain", MPI_INFO_NULL);
    OK(MPI_File_write_at_all(file, 4 * rank, &rank, 1, MPI_INT, &status));
    OK(MPI_File_read_at_all(file, 4 * rank, &one, 1, MPI_INT, &status));
    SAME(one, rank);
    meet();
}

/* A long has 4 bytes in "external32". */
static void test_portable(void)
{
    MPI_Datatype tile;
    MPI_Aint extent;
    MPI_Offset size;
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_set_size(file, 0));
    MPI_Type_create_subarray(1, (int[]){2 * ranks}, (int[]){2}, (int[]){2 * rank}, MPI_ORDER_C, MPI_LONG, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, 0, MPI_LONG, tile, "external32", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, tile, &extent));
    SAME(extent, 8 * ranks);
    long out[10], in[10];
    for (int i = 0; i < 10; i++)
        out[i] = rank * 77 - i;
    OK(MPI_File_write_all(file, out, 10, MPI_LONG, &status));
    OK(MPI_File_read_at_all(file, 0, in, 10, MPI_LONG, &status));
    CHECK(memcmp(in, out, sizeof in) == 0);
    meet();
    OK(MPI_File_get_size(file, &size));
    SAME(size, 40 * ranks);
    MPI_Type_free(&tile);
}

/* One element that is larger than the conversion buffer. */
static void test_portable_large(void)
{
    enum { INTS = 300000, DOUBLES = 100000, WHOLE = INTS * 4 + DOUBLES * 8, PART = 1100002 };
    static struct {
        int ints[INTS];
        double doubles[DOUBLES];
    } out, in;
    static unsigned char bytes[WHOLE];
    MPI_Datatype type;
    MPI_Offset at = (MPI_Offset)rank * WHOLE;
    int got;
    MPI_Type_create_struct(2, (int[]){INTS, DOUBLES}, (MPI_Aint[]){0, (char *)out.doubles - (char *)&out},
                           (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < INTS; i++)
        out.ints[i] = rank + i * 7;
    for (int i = 0; i < DOUBLES; i++)
        out.doubles[i] = rank - i * 0.5;
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at(file, at, &out, 1, type, &status));
    memset(&in, 0, sizeof in);
    OK(MPI_File_read_at(file, at, &in, 1, type, &status));
    MPI_Get_count(&status, type, &got);
    SAME(got, 1);
    CHECK(memcmp(in.ints, out.ints, sizeof in.ints) == 0 && memcmp(in.doubles, out.doubles, sizeof in.doubles) == 0);
    OK(MPI_File_read_at(file, at, bytes, WHOLE, MPI_BYTE, &status));
    for (int i = 0; i < WHOLE; i++) {
        int size = i < INTS * 4 ? 4 : 8, from = i < INTS * 4 ? 0 : INTS * 4;
        const unsigned char *native = from ? (unsigned char *)out.doubles : (unsigned char *)out.ints;
        int place = (i - from) / size * size + size - 1 - (i - from) % size;
        if (bytes[i] != native[place]) {
            fail(__LINE__, "byte %d is %d instead of %d", i, bytes[i], native[place]);
            break;
        }
    }
    meet();
    /* The last element ends within an int. */
    OK(MPI_File_set_size(file, (MPI_Offset)(ranks - 1) * WHOLE + PART));
    memset(&in, 0, sizeof in);
    OK(MPI_File_read_at(file, (MPI_Offset)(ranks - 1) * WHOLE, &in, 1, type, &status));
    if (rank == ranks - 1) {
        CHECK(memcmp(in.ints, out.ints, PART / 4 * 4) == 0);
        SAME(in.ints[PART / 4], 0);
    }
    meet();
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    name_file(path, sizeof path, "file_representation");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                     &file));
    MPI_Datatype two;
    MPI_Type_create_indexed_block(2, 1, (int[]){0, 3}, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, 20, &gappy);
    MPI_Type_commit(&gappy);
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &mixed);
    MPI_Type_commit(&mixed);
    test_names();
    test_ints("wide", MPI_INT, 0);
    test_ints("wide", MPI_INT, 1);
    test_ints("wide", gappy, 0);
    test_ints("large", gappy, 1);
    test_mixed();
    test_failure();
    test_portable();
    test_portable_large();
    CHECK(reads > 0 && writes > 0 && wrongs == 0);
    MPI_Type_free(&two);
    MPI_Type_free(&gappy);
    MPI_Type_free(&mixed);
    OK(MPI_File_close(&file));
    return finish();
}
