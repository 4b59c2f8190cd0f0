/* Several programs in one call, info keys, and error reports that name the process that cannot be started and the
 * reason.
 * test: ranks=1,2,3 timeout=120 env=FASTPATH_SPAWN_MAX=24 */
#include "../check.h"
#include <unistd.h>

static const char *program;

static MPI_Info info_of(const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    OK(MPI_Info_set(info, key, value));
    return info;
}

/* A child sends its parents the number of its program, and whether it runs in the right place. */
static void report(MPI_Comm parent, int argc, char **argv)
{
    char folder[1000];
    int flag, *value, size, told[3] = {-1, 0, argc};
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
    CHECK(flag);
    told[0] = *value;
    told[1] = getcwd(folder, sizeof folder) && strcmp(folder, "/") == 0;
    MPI_Comm_remote_size(parent, &size);
    for (int i = 0; i < size; i++)
        OK(MPI_Send(told, 3, MPI_INT, i, 0, parent));
    (void)argv;
    OK(MPI_Comm_disconnect(&parent));
}

static void hear(MPI_Comm inter, int from, int number, int at_root, int words)
{
    int told[3] = {-1, -1, -1};
    OK(MPI_Recv(told, 3, MPI_INT, from, 0, inter, MPI_STATUS_IGNORE));
    SAME(told[0], number);
    SAME(told[1], at_root);
    SAME(told[2], words);
}

static void check_multiple(int root)
{
    char *one[] = {"x", NULL}, *two[] = {"x", "y", "z", NULL};
    char *commands[] = {(char *)program, (char *)program, (char *)program}, **argvs[] = {one, MPI_ARGV_NULL, two};
    int counts[] = {1, 2, 1}, codes[4] = {-1, -1, -1, -1}, size;
    MPI_Info infos[] = {MPI_INFO_NULL, info_of("wdir", "/"), MPI_INFO_NULL};
    MPI_Comm inter;
    int here = rank == root;
    OK(MPI_Comm_spawn_multiple(here ? 3 : 0, here ? commands : NULL, here ? argvs : NULL, here ? counts : NULL,
                               here ? infos : NULL, root, MPI_COMM_WORLD, &inter, codes));
    MPI_Comm_remote_size(inter, &size);
    SAME(size, 4);
    for (int i = 0; i < 4; i++)
        SAME(codes[i], MPI_SUCCESS);
    hear(inter, 0, 0, 0, 2);
    hear(inter, 1, 1, 1, 1);
    hear(inter, 2, 1, 1, 1);
    hear(inter, 3, 2, 0, 4);
    OK(MPI_Comm_disconnect(&inter));
    OK(MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, (int[]){1, 1}, (MPI_Info[]){MPI_INFO_NULL, MPI_INFO_NULL},
                               root, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE));
    hear(inter, 0, 0, 0, 1);
    hear(inter, 1, 1, 0, 1);
    OK(MPI_Comm_disconnect(&inter));
    MPI_Info_free(&infos[1]);
}

/* Checks how many processes, of at most `most`, start with this value of `soft`. */
static void check_soft(const char *soft, int most, int expected)
{
    MPI_Info info = info_of("soft", soft);
    int codes[8], size = 0;
    MPI_Comm inter;
    OK(MPI_Comm_spawn(program, MPI_ARGV_NULL, most, info, 0, MPI_COMM_WORLD, &inter, codes));
    MPI_Comm_remote_size(inter, &size);
    SAME(size, expected);
    for (int i = 0; i < most; i++)
        SAME(codes[i] == MPI_SUCCESS, i < expected);
    for (int i = 0; i < size; i++)
        hear(inter, i, 0, 0, 1);
    OK(MPI_Comm_disconnect(&inter));
    MPI_Info_free(&info);
}

/* A rejected call creates no communicator and returns an error code for each process. */
static void check_refused(const char *command, int most, const char *key, const char *value, int class)
{
    MPI_Info info = key ? info_of(key, value) : MPI_INFO_NULL;
    MPI_Comm inter = MPI_COMM_SELF;
    int codes[100];
    memset(codes, 0, sizeof codes);
    int got = class_of(MPI_Comm_spawn(command, MPI_ARGV_NULL, most, info, 0, MPI_COMM_WORLD, &inter, codes));
    if (got != class)
        fail(__LINE__, "%s, %d, %s: class %d instead of %d", command, most, key ? value : "", got, class);
    SAME(inter, MPI_COMM_NULL);
    if (class == MPI_ERR_SPAWN && most <= 100 && !(key && strcmp(key, "soft") == 0))
        for (int i = 0; i < most; i++)
            SAME(codes[i], MPI_ERR_SPAWN);
    if (key)
        MPI_Info_free(&info);
}

static void check_all_refused(void)
{
    check_refused(temporary_path("missing/program"), 2, NULL, NULL, MPI_ERR_SPAWN);
    check_refused("no-such-program", 1, NULL, NULL, MPI_ERR_SPAWN);
    check_refused(program, 90, NULL, NULL, MPI_ERR_SPAWN);
    check_refused(program, 0, NULL, NULL, MPI_ERR_ARG);
    check_refused(program, -1, NULL, NULL, MPI_ERR_ARG);
    check_refused("", 1, NULL, NULL, MPI_ERR_ARG);
    check_refused(program, 1, "wdir", temporary_path("missing/folder"), MPI_ERR_SPAWN);
    check_refused(program, 1, "host", "some.other.host", MPI_ERR_SPAWN);
    check_refused(program, 1, "file", temporary_path("missing/file"), MPI_ERR_SPAWN);
    check_refused(program, 3, "soft", "5:9", MPI_ERR_SPAWN);
    check_refused(program, 3, "soft", "many", MPI_ERR_INFO_VALUE);
    MPI_Comm inter = MPI_COMM_SELF;
    CLASS(MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, ranks, MPI_COMM_WORLD, &inter, MPI_ERRCODES_IGNORE),
          MPI_ERR_ROOT);
    char *commands[] = {(char *)program, (char *)temporary_path("missing/program")};
    int counts[] = {1, 2}, codes[3] = {0, 0, 0};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    CLASS(MPI_Comm_spawn_multiple(2, commands, MPI_ARGVS_NULL, counts, infos, 0, MPI_COMM_WORLD, &inter, codes),
          MPI_ERR_SPAWN);
    SAME(codes[0], MPI_ERR_OTHER);
    SAME(codes[1], MPI_ERR_SPAWN);
    SAME(codes[2], MPI_ERR_SPAWN);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    program = argv[0];
    start(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        report(parent, argc, argv);
        return finish();
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    check_multiple(0);
    check_multiple(ranks - 1);
    check_soft("1,3", 4, 3);
    check_soft("0:8:2", 4, 4);
    check_all_refused();
    return finish();
}
