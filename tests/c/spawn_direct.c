/* What comes while a job runs, under a launcher that is not ours: a port, the name of a service where the launcher keeps
 * such (argument `names`), processes where it starts such (argument `spawns`; `shares`: they know the names; `multiple`:
 * of several programs; `ends`: some end at once, and `tells`: the launcher says so; `skips`: nothing is spawned), and an
 * error that says what to do for the rest. Two ranks, also of two hosts, are joined over a socket of their own.
 * test: only=build */
#include "check.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* What a refusal says. */
static void check_refused(int line, int code, int class, const char *word)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (class_of(code) != class || !strstr(text, word))
        fail(line, "class %d: %s", class_of(code), text);
}

/* A program that is not there is told of before the engine, which would end the job, hears of it. */
static void check_missing(void)
{
    MPI_Comm inter = MPI_COMM_SELF;
    int code = MPI_Comm_spawn(temporary_path("missing/program"), MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter,
                              MPI_ERRCODES_IGNORE);
    if (rank == 0)
        check_refused(__LINE__, code, MPI_ERR_SPAWN, "/missing/program: No such file or directory");
    else
        CLASS(code, MPI_ERR_SPAWN);
    SAME(inter, MPI_COMM_NULL);
}

/* Processes that end before they call MPI_Init are not waited for: no longer than the info key says, or until the launcher
 * says so. */
static void check_ended(int tells)
{
    MPI_Comm inter = MPI_COMM_SELF;
    MPI_Info info;
    int codes[2] = {-1, -1};
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "timeout", "soon"));
    CLASS(MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 2, info, 0, MPI_COMM_WORLD, &inter, codes), MPI_ERR_INFO_VALUE);
    OK(MPI_Info_set(info, "timeout", tells ? "1000" : "1"));
    int code = MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 2, info, 0, MPI_COMM_WORLD, &inter, codes);
    if (rank == 0)
        check_refused(__LINE__, code, MPI_ERR_SPAWN, tells ? "ended before they called MPI_Init" : "called MPI_Init");
    else
        CLASS(code, MPI_ERR_SPAWN);
    SAME(class_of(codes[1]), MPI_ERR_SPAWN);
    SAME(inter, MPI_COMM_NULL);
    OK(MPI_Info_free(&info));
}

/* Children of all ranks and of one alone, which have a word for their parents. */
static void check_children(char *program, int shares)
{
    char *words[] = {shares ? "looks up" : "child", "two words", NULL};
    if (rank == 0 && shares)
        OK(MPI_Publish_name(service_of("for children"), MPI_INFO_NULL, "anywhere"));
    for (int round = 0; round < 2; round++) {
        MPI_Comm inter, comm = round == 0 ? MPI_COMM_WORLD : MPI_COMM_SELF;
        int codes[2] = {-1, -1}, size = -1, root = round == 0 ? ranks - 1 : 0, own, here, sum = 0;
        if (round == 1 && rank != 0)
            continue;
        MPI_Comm_rank(comm, &own);
        MPI_Comm_size(comm, &here);
        OK(MPI_Comm_spawn(own == root ? program : NULL, own == root ? words : NULL, 2, MPI_INFO_NULL, root, comm, &inter,
                          codes));
        SAME(codes[0], MPI_SUCCESS);
        SAME(codes[1], MPI_SUCCESS);
        MPI_Comm_remote_size(inter, &size);
        SAME(size, 2);
        OK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, inter));
        SAME(sum, 2 * here);
        OK(MPI_Comm_disconnect(&inter));
    }
    if (rank == 0 && shares)
        OK(MPI_Unpublish_name(service_of("for children"), MPI_INFO_NULL, "anywhere"));
}

/* Two programs in one call: each child says which one it runs, and with how many words. */
static void check_multiple(char *program)
{
    char *one[] = {"number", NULL}, *two[] = {"number", "two words", NULL};
    char *programs[] = {program, program}, **words[] = {one, two};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm inter;
    int counts[] = {1, 2}, codes[3] = {-1, -1, -1}, size = -1;
    OK(MPI_Comm_spawn_multiple(2, programs, words, counts, infos, 0, MPI_COMM_WORLD, &inter, codes));
    MPI_Comm_remote_size(inter, &size);
    SAME(size, 3);
    for (int child = 0; child < 3; child++) {
        int told[2] = {-1, -1};
        SAME(codes[child], MPI_SUCCESS);
        if (rank == 0)
            OK(MPI_Recv(told, 2, MPI_INT, child, 0, inter, MPI_STATUS_IGNORE));
        else
            continue;
        SAME(told[0], child > 0);
        SAME(told[1], child > 0 ? 3 : 2);
    }
    OK(MPI_Comm_disconnect(&inter));
}

/* The first and the last rank, which may be on two hosts, have a socket. */
static void check_join(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    struct {
        char host[256];
        int port;
    } own = {"", 0}, told;
    MPI_Comm inter;
    int fd = socket(AF_INET, SOCK_STREAM, 0), word = rank, other = -1;
    gethostname(own.host, sizeof own.host);
    if (rank == 0) {
        SAME(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
        SAME(listen(fd, 1), 0);
        SAME(getsockname(fd, (struct sockaddr *)&address, &length), 0);
        own.port = ntohs(address.sin_port);
    }
    told = own;
    OK(MPI_Bcast(&told, sizeof told, MPI_BYTE, 0, MPI_COMM_WORLD));
    if (rank == 0) {
        int listener = fd;
        fd = accept(listener, NULL, NULL);
        close(listener);
    } else if (rank == ranks - 1) {
        struct hostent *found = strcmp(told.host, own.host) ? gethostbyname(told.host) : NULL;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (found)
            memcpy(&address.sin_addr, found->h_addr_list[0], sizeof address.sin_addr);
        address.sin_port = htons((unsigned short)told.port);
        SAME(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    }
    if (rank == 0 || rank == ranks - 1) {
        OK(MPI_Comm_join(fd, &inter));
        CHECK(inter != MPI_COMM_NULL);
        OK(MPI_Sendrecv(&word, 1, MPI_INT, 0, 1, &other, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
        SAME(other, ranks - 1 - rank);
        OK(MPI_Comm_disconnect(&inter));
    }
    close(fd);
}

static int be_child(MPI_Comm parent, int argc, char **argv)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, sum, parents;
    const char *task = argc > 1 ? argv[1] : "";
    if (!strcmp(task, "number")) {
        int flag = 0, *value, told[2] = {-1, argc};
        OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &value, &flag));
        if (flag)
            told[0] = *value;
        OK(MPI_Send(told, 2, MPI_INT, 0, 0, parent));
        OK(MPI_Comm_disconnect(&parent));
        return finish();
    }
    SAME(argc, 3);
    CHECK(!strcmp(argv[2], "two words"));
    MPI_Comm_get_name(parent, name, &length);
    CHECK(!strcmp(name, "MPI_COMM_PARENT"));
    if (!strcmp(task, "looks up")) {
        char found[MPI_MAX_PORT_NAME] = "";
        OK(MPI_Lookup_name(service_of("for children"), MPI_INFO_NULL, found));
        CHECK(!strcmp(found, "anywhere"));
    }
    MPI_Comm_remote_size(parent, &parents);
    OK(MPI_Allreduce(&parents, &sum, 1, MPI_INT, MPI_SUM, parent));
    SAME(sum, parents * (parents - 1) / 2);
    OK(MPI_Comm_disconnect(&parent));
    return finish();
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME] = "", found[MPI_MAX_PORT_NAME] = "";
    int names = 0, spawns = 0, skips = 0, shares = 0, multiple = 0, ends = 0, tells = 0, code, codes[2] = {-1, -1};
    MPI_Comm inter, parent;
    for (int i = 1; i < argc; i++) {
        names |= !strcmp(argv[i], "names");
        spawns |= !strcmp(argv[i], "spawns");
        skips |= !strcmp(argv[i], "skips");
        shares |= !strcmp(argv[i], "shares");
        multiple |= !strcmp(argv[i], "multiple");
        tells |= !strcmp(argv[i], "tells");
        ends |= tells || !strcmp(argv[i], "ends");
    }
    start(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        return be_child(parent, argc, argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    if (rank == 0)
        OK(MPI_Open_port(MPI_INFO_NULL, port));
    OK(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
    if (rank == 0) {
        code = MPI_Publish_name(service_of("a service"), MPI_INFO_NULL, port);
        if (names)
            OK(code);
        else
            check_refused(__LINE__, code, MPI_ERR_OTHER, "does not keep names of services");
    }
    meet();
    if (rank == ranks - 1) {
        code = MPI_Lookup_name(service_of("a service"), MPI_INFO_NULL, found);
        if (names) {
            OK(code);
            CHECK(!strcmp(found, port));
            CLASS(MPI_Lookup_name("nobody's", MPI_INFO_NULL, found), MPI_ERR_NAME);
            CLASS(MPI_Publish_name(service_of("a service"), MPI_INFO_NULL, port), MPI_ERR_SERVICE);
            CLASS(MPI_Unpublish_name("nobody's", MPI_INFO_NULL, port), MPI_ERR_SERVICE);
            CLASS(MPI_Unpublish_name(service_of("a service"), MPI_INFO_NULL, "another"), MPI_ERR_SERVICE);
        } else {
            check_refused(__LINE__, code, MPI_ERR_OTHER, "does not keep names of services");
        }
    }
    meet();
    if (rank == 0 && names)
        OK(MPI_Unpublish_name(service_of("a service"), MPI_INFO_NULL, port));
    int has_both = ranks > 1;
    if (rank == 0 && has_both)
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    else if (rank == ranks - 1 && has_both)
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
    if (has_both && (rank == 0 || rank == ranks - 1)) {
        int word = rank, other = -1;
        OK(MPI_Sendrecv(&word, 1, MPI_INT, 0, 1, &other, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
        SAME(other, ranks - 1 - rank);
        OK(MPI_Comm_disconnect(&inter));
    }
    if (has_both)
        check_join();
    check_missing();
    if (spawns) {
        check_children(argv[0], shares);
        if (multiple)
            check_multiple(argv[0]);
    }
    if (ends)
        check_ended(tells);
    if (spawns || skips)
        return finish();
    code = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter, codes);
    if (rank == 0)
        check_refused(__LINE__, code, MPI_ERR_SPAWN, "mpiexec");
    else
        CLASS(code, MPI_ERR_SPAWN);
    SAME(class_of(codes[1]), MPI_ERR_SPAWN);
    return finish();
}
