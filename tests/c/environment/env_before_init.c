/* Calls that are allowed before MPI_Init and after MPI_Finalize.
 * test: ranks=1,2 */
#include "../check.h"

static void query_anytime(int before)
{
    int flag = -1, major = 0, minor = 0, length = 0, class = -1;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    OK(MPI_Initialized(&flag));
    SAME(flag, !before);
    OK(MPI_Finalized(&flag));
    SAME(flag, !before);
    OK(MPI_Get_version(&major, &minor));
    SAME(major, 5);
    SAME(minor, 0);
    OK(MPI_Get_library_version(text, &length));
    CHECK(length > 0 && strlen(text) == (size_t)length && strstr(text, "Fastpath"));
    major = minor = -2;
    OK(MPI_Abi_get_version(&major, &minor));
    SAME(major, 1);
    SAME(minor, 0);
    OK(MPI_Error_class(MPI_ERR_TAG, &class));
    SAME(class, MPI_ERR_TAG);
    OK(MPI_Error_string(MPI_ERR_TAG, text, &length));
    CHECK(length > 0);
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "value"));
    OK(MPI_Info_get_nkeys(info, &length));
    SAME(length, 1);
    OK(MPI_Info_free(&info));
}

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    query_anytime(1);
    OK(MPI_Init(NULL, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(MPI_Finalize());
    query_anytime(0);
    return failures ? 1 : 0;
}
