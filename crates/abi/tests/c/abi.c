/* The queries of the ABI, before initialisation: each check is a sentence, printed when it fails. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int failures;

static void check(int holds, const char *sentence)
{
    if (!holds) {
        printf("not so: %s\n", sentence);
        failures++;
    }
}

static int holds_value(MPI_Info info, const char *key, const char *value)
{
    char text[32];
    int length = sizeof text, flag = 0;
    return MPI_Info_get_string(info, key, &length, text, &flag) == MPI_SUCCESS && flag &&
           strcmp(text, value) == 0;
}

int main(void)
{
    int major = 0, minor = -1, is_set = -1, keys = 0;
    int yes = -1, no = 0;
    MPI_Info info = MPI_INFO_NULL;

    MPI_Abi_get_version(&major, &minor);
    check(major == 1 && minor == 0, "the ABI has version 1.0");

    MPI_Abi_get_info(&info);
    MPI_Info_get_nkeys(info, &keys);
    check(keys == 3, "the sizes of three types are told");
    check(holds_value(info, "mpi_aint_size", "8"), "MPI_Aint has 8 bytes");
    check(holds_value(info, "mpi_count_size", "8"), "MPI_Count has 8 bytes");
    check(holds_value(info, "mpi_offset_size", "8"), "MPI_Offset has 8 bytes");
    MPI_Info_free(&info);

    check(MPI_Abi_get_fortran_info(&info) == MPI_SUCCESS && info == MPI_INFO_NULL,
          "nothing is known of Fortran at first");
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_integer_size", "4");
    check(MPI_Abi_set_fortran_info(info) == MPI_SUCCESS, "Fortran's types can be described");
    MPI_Info_free(&info);
    MPI_Abi_get_fortran_info(&info);
    check(holds_value(info, "mpi_integer_size", "4"), "what was described is told");
    MPI_Info_free(&info);

    MPI_Abi_get_fortran_booleans(4, &yes, &no, &is_set);
    check(is_set == 0 && yes == -1, "the booleans are not known at first");
    check(MPI_Abi_set_fortran_booleans(4, &yes, &no) == MPI_SUCCESS, "the booleans can be set");
    yes = no = 7;
    MPI_Abi_get_fortran_booleans(4, &yes, &no, &is_set);
    check(is_set == 1 && yes == -1 && no == 0, "what was set is told");
    return failures;
}
