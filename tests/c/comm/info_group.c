/* Info objects, also before MPI_Init, and groups. */
#include "../comm_check.h"

static void test_info(int initialized)
{
    MPI_Info info, copy, env;
    char key[MPI_MAX_INFO_KEY], value[MPI_MAX_INFO_VAL], big[MPI_MAX_INFO_VAL + 1];
    int flag, count, length;
    MPI_Info_create(&info);
    MPI_Info_set(info, "b", "first");
    MPI_Info_set(info, "a", "second");
    MPI_Info_set(info, "b", "third");
    MPI_Info_get_nkeys(info, &count);
    CHECK(count == 2);
    MPI_Info_get_nthkey(info, 0, key);
    CHECK(strcmp(key, "b") == 0);
    MPI_Info_dup(info, &copy);
    MPI_Info_delete(info, "b");
    MPI_Info_get(copy, "b", MPI_MAX_INFO_VAL - 1, value, &flag);
    CHECK(flag && strcmp(value, "third") == 0);
    MPI_Info_get_valuelen(copy, "a", &length, &flag);
    CHECK(flag && length == 6);
    MPI_Info_get(info, "b", 10, value, &flag);
    CHECK(!flag);
    length = 3;
    MPI_Info_get_string(copy, "a", &length, value, &flag);
    CHECK(flag && length == 7 && strcmp(value, "se") == 0);
    if (initialized) {
        memset(big, 'x', sizeof big);
        big[sizeof big - 1] = 0;
        CLASS(MPI_Info_set(info, "k", big), MPI_ERR_INFO_VALUE);
        CLASS(MPI_Info_set(info, big, "v"), MPI_ERR_INFO_KEY);
        CLASS(MPI_Info_set(info, "", "v"), MPI_ERR_INFO_KEY);
        CLASS(MPI_Info_delete(info, "b"), MPI_ERR_INFO_NOKEY);
        CLASS(MPI_Info_get_nthkey(info, 1, key), MPI_ERR_ARG);
    }
    MPI_Info_free(&info);
    MPI_Info_free(&copy);
    CHECK(info == MPI_INFO_NULL);

    MPI_Info_get(MPI_INFO_ENV, "command", MPI_MAX_INFO_VAL - 1, value, &flag);
    CHECK(flag && strstr(value, "info_group"));
    MPI_Info_get(MPI_INFO_ENV, "maxprocs", MPI_MAX_INFO_VAL - 1, value, &flag);
    CHECK(flag == initialized);
    char *arguments[] = {"name", "x", "y z", NULL};
    MPI_Info_create_env(3, arguments, &env);
    MPI_Info_get(env, "argv", MPI_MAX_INFO_VAL - 1, value, &flag);
    CHECK(flag && strcmp(value, "x y z") == 0);
    MPI_Info_free(&env);
}

static void test_groups(void)
{
    MPI_Group world, even, odd, all, none, some;
    int result, given[3] = {0, MPI_PROC_NULL, 0}, translated[3];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int evens[1][3] = {{0, ranks - 1, 2}};
    MPI_Group_range_incl(world, 1, evens, &even);
    MPI_Group_difference(world, even, &odd);
    MPI_Group_union(even, odd, &all);
    MPI_Group_compare(all, world, &result);
    CHECK(result == (ranks > 2 ? MPI_SIMILAR : MPI_IDENT));
    MPI_Group_intersection(even, odd, &none);
    CHECK(none == MPI_GROUP_EMPTY);
    int own;
    MPI_Group_rank(even, &own);
    CHECK(own == (rank % 2 == 0 ? rank / 2 : MPI_UNDEFINED));
    MPI_Group_translate_ranks(world, 3, given, odd, translated);
    CHECK(translated[0] == MPI_UNDEFINED && translated[1] == MPI_PROC_NULL);
    int mine[1] = {rank};
    MPI_Group_excl(world, 1, mine, &some);
    MPI_Group_size(some, &result);
    CHECK(result == ranks - 1);
    CLASS(MPI_Group_incl(world, 1, (int[]){ranks}, &none), MPI_ERR_RANK);
    CLASS(MPI_Group_incl(world, 2, (int[]){0, 0}, &none), MPI_ERR_RANK);
    MPI_Group *groups[] = {&world, &even, &all};
    for (int i = 0; i < 3; i++) {
        MPI_Group_free(groups[i]);
        CHECK(*groups[i] == MPI_GROUP_NULL);
    }
}

int main(int argc, char **argv)
{
    test_info(0);
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    test_info(1);
    test_groups();
    return finish();
}
