/* A user's quota of a real file system, used up: whoever writes past it is told so with file, rank, offset, bytes and the
 * system's reason, all ranks of a collective call the same; what was written before is whole, and the file can be used.
 *
 *     file_quota limit DEVICE USER KIB      sets the quota, as root
 *     file_quota FILE                       as that user: the file is made anew for each way of writing
 *
 * The case `quota` of tests/vm runs it on ext4; tests/c/file_failing.c has more forms, whose errors are made up. */
/* test: only=build */
#include "check.h"
#include <errno.h>
#include <sys/quota.h>

enum { BLOCK = 1 << 16, ROUNDS = 24 };

/* How the blocks of the ranks lie: one after the other; in rows in turn, by way of others; the same in small pieces,
 * which are stored. */
static const struct { const char *name, *exchange; int row, is_collective; } ways[] = {
    {"apart", "disable", BLOCK, 0}, {"together", "enable", 512, 1}, {"stored", "disable", 8, 0}};

static MPI_File file;
static MPI_Status status;
static unsigned char out[BLOCK];
static const char *path;

static void open_file(int way)
{
    MPI_Info info;
    MPI_Datatype row, tile;
    int bytes = ways[way].row;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", ways[way].exchange);
    MPI_Info_set(info, "cb_nodes", "2");
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, info, &file));
    MPI_Type_contiguous(bytes, MPI_BYTE, &row);
    MPI_Type_create_resized(row, 0, (MPI_Aint)bytes * ranks, &tile);
    MPI_Type_commit(&tile);
    OK(MPI_File_set_view(file, (MPI_Offset)bytes * rank, MPI_BYTE, tile, "native", info));
    MPI_Type_free(&tile);
    MPI_Type_free(&row);
    MPI_Info_free(&info);
}

static int write_block(int way, int round)
{
    MPI_Offset at = (MPI_Offset)round * BLOCK;
    fill(out, BLOCK, way * ROUNDS + round);
    return ways[way].is_collective ? MPI_File_write_at_all(file, at, out, BLOCK, MPI_BYTE, &status)
                                   : MPI_File_write_at(file, at, out, BLOCK, MPI_BYTE, &status);
}

/* The error says which file, whose call, where, how many bytes, and why. */
static void check_error(int code, int is_collective, const char *at)
{
    char text[MPI_MAX_ERROR_STRING], first[MPI_MAX_ERROR_STRING], named[300];
    int length, who = -1, used = 0;
    long long bytes = 0, offset = 0;
    CLASS(code, MPI_ERR_QUOTA);
    MPI_Error_string(code, text, &length);
    snprintf(named, sizeof named, "file \"%s\", rank ", path);
    const char *rest = strstr(text, named), *place;
    if (rest)
        sscanf(rest + strlen(named), "%d:%n", &who, &used);
    place = rest ? strchr(rest, '(') : NULL;
    int found = place ? sscanf(place, "(%lld bytes at offset %lld)", &bytes, &offset) : 0;
    if (!used || who < 0 || who >= ranks || (!is_collective && who != rank) || found < (*at ? 2 : 1) || bytes <= 0 ||
        offset < 0 || offset + bytes > (long long)ROUNDS * BLOCK * ranks || !strstr(text, at) ||
        !strstr(text, strerror(EDQUOT)))
        fail(__LINE__, "the error is told as: %s", text);
    memcpy(first, text, sizeof first);
    if (is_collective)
        MPI_Bcast(first, sizeof first, MPI_CHAR, 0, MPI_COMM_WORLD);
    CHECK(strcmp(first, text) == 0);
}

/* The rank's blocks before `failed` are whole; of that one each byte was written or was not. */
static void look_at_file(int way, int failed)
{
    int row = ways[way].row, bad = 0;
    FILE *stream = fopen(path, "rb");
    for (int round = 0; stream && round <= failed; round++)
        for (int i = 0; i < BLOCK; i++) {
            long at = (long)round * BLOCK + i;
            if (at % row == 0)
                fseek(stream, (at / row * ranks + rank) * row, SEEK_SET);
            int byte = fgetc(stream), is_new = byte == byte_of(way * ROUNDS + round, i);
            bad += !is_new && (round < failed || (byte != 0 && byte != EOF));
        }
    if (!stream || bad)
        fail(__LINE__, "%s: %d bytes of the file are wrong", ways[way].name, bad);
    if (stream)
        fclose(stream);
}

static void check_way(int way)
{
    int code = MPI_SUCCESS, round = 0;
    open_file(way);
    meet();
    for (; round < ROUNDS; round++) {
        if ((code = write_block(way, round)) != MPI_SUCCESS)
            break;
        if (round == 0)
            meet();
    }
    /* The first blocks had their space, the last ones could not. */
    CHECK(round > 0 && round < ROUNDS);
    check_error(code, ways[way].is_collective, " bytes at offset ");
    meet();
    /* What has its space is written again. */
    OK(write_block(way, 0));
    OK(MPI_File_sync(file));
    OK(MPI_File_close(&file));
    meet();
    look_at_file(way, round);
    meet();
    if (rank == 0)
        OK(MPI_File_delete(path, MPI_INFO_NULL));
    meet();
}

/* Space that rank 0 asks for. */
static void check_space(void)
{
    OK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    check_error(MPI_File_preallocate(file, (MPI_Offset)ROUNDS * BLOCK), 1, "");
    OK(MPI_File_close(&file));
}

static int set_limit(const char *device, int user, long kib)
{
    struct dqblk limit = {.dqb_bhardlimit = (unsigned long)kib, .dqb_valid = QIF_BLIMITS};
    if (quotactl(QCMD(Q_SETQUOTA, USRQUOTA), device, user, (caddr_t)&limit) == 0)
        return 0;
    perror("quotactl");
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 5)
        return set_limit(argv[2], atoi(argv[3]), atol(argv[4]));
    start(&argc, &argv);
    if (argc != 2)
        return 2;
    path = argv[1];
    for (int way = 0; way < (int)(sizeof ways / sizeof *ways); way++)
        check_way(way);
    check_space();
    return finish();
}
