/* Error handlers, classes, codes and strings; return values of calls that fail. */
#include "../comm_check.h"
#include <stdarg.h>

static MPI_Comm seen_comm;
static int seen_code, calls, answer;

/* Variadic, as users write it; the further arguments are unused. */
static void handler(MPI_Comm *comm, int *code, ...)
{
    va_list more;
    va_start(more, code);
    va_end(more);
    seen_comm = *comm;
    seen_code = *code;
    if (answer)
        *code = answer == -1 ? MPI_SUCCESS : answer;
    calls++;
}

static void file_handler(MPI_File *file, int *code, ...)
{
    CHECK(*file == MPI_FILE_NULL && *code != MPI_SUCCESS);
    calls++;
}

static void test_handlers(void)
{
    MPI_Comm dup, freed;
    MPI_Errhandler own, got;
    int value, size;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&got);
    CHECK(got == MPI_ERRHANDLER_NULL);

    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_set_errhandler(dup, own);
    MPI_Errhandler saved = own;
    MPI_Errhandler_free(&own);
    CHECK(own == MPI_ERRHANDLER_NULL);
    MPI_Comm_get_errhandler(dup, &got);
    CHECK(got == saved); /* the handler is valid while a communicator uses it */
    MPI_Errhandler_free(&got);

    CLASS(MPI_Send(&value, 1, MPI_INT, ranks, 0, dup), MPI_ERR_RANK);
    CHECK(calls == 1 && seen_comm == dup && seen_code == MPI_ERR_RANK);
    CLASS(MPI_Send(&value, 1, MPI_INT, 0, -5, dup), MPI_ERR_TAG);
    CLASS(MPI_Send(&value, -1, MPI_INT, 0, 0, dup), MPI_ERR_COUNT);
    CLASS(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, dup), MPI_ERR_TYPE);
    CHECK(calls == 4 && seen_code == MPI_ERR_TYPE);
    CHECK(MPI_Comm_call_errhandler(dup, MPI_ERR_OTHER) == MPI_SUCCESS);
    CHECK(calls == 5 && seen_code == MPI_ERR_OTHER);

    /* The call returns what the handler stores in the code. */
    answer = -1;
    OK(MPI_Send(&value, 1, MPI_INT, ranks, 0, dup));
    answer = MPI_ERR_OTHER;
    CLASS(MPI_Send(&value, 1, MPI_INT, ranks, 0, dup), MPI_ERR_OTHER);
    CHECK(calls == 7 && seen_code == MPI_ERR_RANK);
    answer = 0;

    MPI_Comm inherits;
    MPI_Comm_split(dup, 0, 0, &inherits);
    MPI_Send(&value, 1, MPI_INT, ranks, 0, inherits);
    CHECK(calls == 8 && seen_comm == inherits);
    MPI_Comm_free(&inherits);

    /* Errors without a communicator go to the handler of MPI_COMM_SELF. */
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, own);
    freed = dup;
    MPI_Comm_free(&dup);
    CLASS(MPI_Comm_size(freed, &size), MPI_ERR_COMM);
    CHECK(calls == 9 && seen_comm == MPI_COMM_SELF);
    CLASS(MPI_Info_set(MPI_INFO_NULL, "a", "b"), MPI_ERR_INFO);
    CHECK(calls == 10);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CLASS(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRHANDLER_NULL), MPI_ERR_ERRHANDLER);
    CLASS(MPI_Group_size(MPI_GROUP_NULL, &size), MPI_ERR_GROUP);
    CLASS(MPI_Comm_size(MPI_COMM_SELF, NULL), MPI_ERR_ARG);
    CHECK(calls == 10);
    MPI_Errhandler_free(&own);
}

static void test_codes(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code, got, *last, flag;
    for (int standard = MPI_SUCCESS; standard <= MPI_ERR_ABI; standard++) {
        MPI_Error_class(standard, &got);
        CHECK(got == standard);
        MPI_Error_string(standard, text, &length);
        CHECK(length > 10 && (size_t)length == strlen(text) && strncmp(text, "MPI_", 4) == 0);
    }
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "the kettle boils over");
    MPI_Error_string(code, text, &length);
    CHECK(strcmp(text, "the kettle boils over") == 0 && length == 21);
    MPI_Error_class(code, &got);
    CHECK(got == class);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    CHECK(flag && *last == code);
    CLASS(MPI_Add_error_string(MPI_ERR_OTHER, "mine"), MPI_ERR_ARG);
    CLASS(MPI_Remove_error_code(code), MPI_ERR_ARG);
    MPI_Remove_error_string(code);
    CLASS(MPI_Remove_error_class(class), MPI_ERR_ARG);
    CHECK(MPI_Remove_error_code(code) == MPI_SUCCESS && MPI_Remove_error_class(class) == MPI_SUCCESS);
    CLASS(MPI_Remove_error_class(class), MPI_ERR_ARG);

    /* The cause of the last error can be read. */
    MPI_Group_size(MPI_GROUP_NULL, &got);
    MPI_Error_string(MPI_ERR_GROUP, text, &length);
    CHECK(strstr(text, "MPI_Group_size") && strstr(text, "MPI_GROUP_NULL"));
}

static void test_files(void)
{
    /* Errors of files are returned by default, independent of the handlers of communicators. */
    MPI_Errhandler got, own;
    MPI_File file = MPI_FILE_NULL;
    MPI_Offset size;
    MPI_File_get_errhandler(MPI_FILE_NULL, &got);
    CHECK(got == MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&got);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&got);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    CHECK(MPI_File_open(MPI_COMM_WORLD, temporary_path("missing/file"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS);
    CHECK(MPI_File_delete(temporary_path("missing/file"), MPI_INFO_NULL) != MPI_SUCCESS);
    CHECK(MPI_File_get_size(MPI_FILE_NULL, &size) != MPI_SUCCESS);

    int before = calls;
    MPI_File_create_errhandler(file_handler, &own);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, own));
    MPI_File_open(MPI_COMM_WORLD, temporary_path("missing/file"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    SAME(calls, before + 1);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&own);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

int main(int argc, char **argv)
{
    /* These calls are valid at any time. */
    int class;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Error_class(MPI_ERR_RANK, &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Error_string(MPI_ERR_RANK, text, &class);
    start(&argc, &argv);
    test_handlers();
    test_codes();
    test_files();
    return finish();
}
