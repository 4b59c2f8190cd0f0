! Functions of a program that MPI calls: operators, error handlers, generalized requests, data representations.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 mistakes=yes
#include "methods.h"
#include "check.h"
module callbacks
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer :: calls, seen_code, cancelled
  integer(kind=MPI_ADDRESS_KIND) :: seen_state, freed
  logical :: seen_object, seen_type
contains
  ! Multiplies complex numbers, and adds the first component of the factor: not commutative.
#define OPERATOR_NAME combine
#define OPERAND complex
#include "operator.inc"
    calls = calls + 1
    seen_type = datatype_ == MPI_COMPLEX
    b = a * b + real(a)
  end subroutine combine

#ifdef METHOD_F08
  subroutine combine_large(in, inout, length, datatype_)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: in, inout
    integer(kind=MPI_COUNT_KIND) :: length
    DATATYPE :: datatype_
    integer, pointer :: a(:), b(:)
    calls = calls + 1
    seen_type = datatype_ == MPI_INTEGER
    call c_f_pointer(in, a, [length])
    call c_f_pointer(inout, b, [length])
    b = max(a, b)
  end subroutine combine_large
#endif

  subroutine on_comm(comm_, code)
    COMM :: comm_
    integer :: code
    calls = calls + 1
    seen_code = code
    seen_object = comm_ == MPI_COMM_WORLD
  end subroutine on_comm

  subroutine on_win(win, code)
    WINDOW :: win
    integer :: code
    calls = calls + 1
    seen_code = code
    seen_object = win /= MPI_WIN_NULL
  end subroutine on_win

  subroutine on_file(file, code)
    FILE_HANDLE :: file
    integer :: code
    calls = calls + 1
    seen_code = code
    seen_object = file == MPI_FILE_NULL
  end subroutine on_file

  subroutine on_session(session_, code)
    SESSION :: session_
    integer :: code
    calls = calls + 1
    seen_code = code
    seen_object = session_ /= MPI_SESSION_NULL
  end subroutine on_session

  subroutine query_request(state, stat, code)
    integer(kind=MPI_ADDRESS_KIND) :: state
    STATUS :: stat
    integer :: code
    logical, parameter :: no = .false.
    seen_state = state
    state = state + 1
    call MPI_Status_set_elements(stat, MPI_INTEGER, 3, code)
    call MPI_Status_set_cancelled(stat, no, code)
    SOURCE_OF(stat) = MPI_UNDEFINED
    TAG_OF(stat) = 44
    code = MPI_SUCCESS
  end subroutine query_request

  subroutine free_request(state, code)
    integer(kind=MPI_ADDRESS_KIND) :: state
    integer :: code
    freed = state
    code = MPI_SUCCESS
  end subroutine free_request

  subroutine cancel_request(state, is_complete, code)
    integer(kind=MPI_ADDRESS_KIND) :: state
    logical :: is_complete
    integer :: code
    cancelled = merge(2, 1, is_complete) + 0 * int(state)
    code = MPI_SUCCESS
  end subroutine cancel_request

  ! A representation in which an integer is stored negated, in 4 bytes.
  subroutine extent(datatype_, bytes, state, code)
    DATATYPE :: datatype_
    integer(kind=MPI_ADDRESS_KIND) :: bytes, state
    integer :: code
    seen_type = datatype_ == MPI_INTEGER
    bytes = 4 + 0 * state
    code = MPI_SUCCESS
  end subroutine extent

#ifdef METHOD_F08
  subroutine convert(user, datatype_, count, file, position, state, code)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: user, file
    DATATYPE :: datatype_
    integer :: count, code
    integer(kind=MPI_OFFSET_KIND) :: position
    integer(kind=MPI_ADDRESS_KIND) :: state
    integer, pointer :: in_memory(:), in_file(:)
    call c_f_pointer(user, in_memory, [position + count])
    call c_f_pointer(file, in_file, [count])
    calls = calls + 1
    seen_type = datatype_ == MPI_INTEGER
    if (state == 1) then
      in_memory(position + 1:position + count) = -in_file(1:count)
    end if
    code = MPI_SUCCESS
  end subroutine convert
#endif
end module callbacks

program fortran_callbacks
  use callbacks
  implicit none
  integer :: rank, ranks, failures, ierr

  call start()
  call operators()
  call error_handlers()
  call generalized_requests()
#ifdef METHOD_F08
  call representations()
#endif
  call finish()
contains
#include "check.inc"

  subroutine operators()
    complex :: a(3), b(3), first, second
    OPERATOR :: op
    logical :: commutes
    integer :: i
#ifdef METHOD_F08
    integer(kind=MPI_COUNT_KIND) :: two = 2
    integer :: c(2), d(2)
#endif
    call MPI_Op_create(combine, .false., op, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(op /= MPI_OP_NULL)
    commutes = .true.
    call MPI_Op_commutative(op, commutes, ierr)
    CHECK(.not. commutes)
    first = (2.0, 1.0)
    second = (3.0, -1.0)
    a = merge(first, second, rank == 0)
    b = 0
    calls = 0
    call MPI_Allreduce(a, b, 3, MPI_COMPLEX, op, MPI_COMM_WORLD, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(abs(b - (first * second + 2.0)) < 1e-5))
    call MPI_Reduce(a, b, 3, MPI_COMPLEX, op, 0, MPI_COMM_WORLD, ierr)
    if (rank == 0) then
      CHECK(all(abs(b - (first * second + 2.0)) < 1e-5))
      CHECK(calls > 0)
      CHECK(seen_type)
    end if
    b = second
    call MPI_Reduce_local(a, b, 3, MPI_COMPLEX, op, ierr)
    CHECK(all(abs(b - (a * second + real(a))) < 1e-5))
    call MPI_Op_free(op, ierr)
    CHECK(op == MPI_OP_NULL)
    call MPI_Op_create(combine, .true., op, ierr)
    call MPI_Op_commutative(op, commutes, ierr)
    CHECK(commutes)
    call MPI_Op_free(op, ierr)
#ifdef METHOD_F08
    call MPI_Op_create_c(combine_large, .true., op, ierr)
    SAME(ierr, MPI_SUCCESS)
    c = [rank, 1 - rank]
    calls = 0
    call MPI_Allreduce(c, d, two, MPI_INTEGER, op, MPI_COMM_WORLD)
    CHECK(all(d == 1))
    call MPI_Allreduce(c, d, 2, MPI_INTEGER, op, MPI_COMM_WORLD)
    CHECK(all(d == 1))
    call MPI_Op_free(op)
#endif
    ! A function can be registered any number of times.
    do i = 1, 100
      call MPI_Op_create(combine, .true., op, ierr)
      SAME(ierr, MPI_SUCCESS)
      call MPI_Op_free(op, ierr)
    end do
    ! Predefined operators on LOGICALs, in each direction.
    call logicals()
  end subroutine operators

  subroutine logicals()
    logical :: a(2), b(2)
    a = [rank == 0, .true.]
    call MPI_Allreduce(a, b, 2, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    CHECK(.not. b(1) .and. b(2))
    call MPI_Allreduce(a, b, 2, MPI_LOGICAL, MPI_LXOR, MPI_COMM_WORLD, ierr)
    CHECK(b(1) .and. .not. b(2))
  end subroutine logicals

  subroutine expect(code, is_object, line)
    integer, intent(in) :: code, line
    logical, intent(in) :: is_object
    call same(int(calls, 8), 1_8, line)
    call same(int(seen_code, 8), int(ierr, 8), line)
    call class_is(ierr, code, line)
    call check(is_object, line)
    calls = 0
    seen_object = .false.
  end subroutine expect

  subroutine error_handlers()
    ERRHANDLER :: handler, found
    WINDOW :: win
    FILE_HANDLE :: file
    SESSION :: session_
    integer :: memory(4)
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    calls = 0
    call MPI_Comm_create_errhandler(on_comm, handler, ierr)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, found, ierr)
    CHECK(found == handler)
    call MPI_Errhandler_free(found, ierr)
    call MPI_Errhandler_free(handler, ierr)
    CHECK(handler == MPI_ERRHANDLER_NULL)
    call MPI_Send(memory, 1, MPI_INTEGER, 7777, 1, MPI_COMM_WORLD, ierr)
    call expect(MPI_ERR_RANK, seen_object, __LINE__)
    call MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_TAG, ierr)
    SAME(calls, 1)
    SAME(seen_code, MPI_ERR_TAG)
    calls = 0
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)

    bytes = 16
    call MPI_Win_create(memory, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_create_errhandler(on_win, handler, ierr)
    call MPI_Win_set_errhandler(win, handler, ierr)
    call MPI_Win_fence(0, win, ierr)
    bytes = 0
    call MPI_Put(memory, 1, MPI_INTEGER, 7777, bytes, 1, MPI_INTEGER, win, ierr)
    call expect(MPI_ERR_RANK, seen_object, __LINE__)
    call MPI_Win_fence(0, win, ierr)
    call MPI_Win_free(win, ierr)
    call MPI_Errhandler_free(handler, ierr)

    call MPI_File_create_errhandler(on_file, handler, ierr)
    call MPI_File_set_errhandler(MPI_FILE_NULL, handler, ierr)
    call MPI_File_open(MPI_COMM_SELF, '/nonexistent/file', MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
    call expect(MPI_ERR_NO_SUCH_FILE, seen_object, __LINE__)
    call MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN, ierr)
    call MPI_Errhandler_free(handler, ierr)

    call MPI_Session_create_errhandler(on_session, handler, ierr)
    call MPI_Session_init(MPI_INFO_NULL, handler, session_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Session_call_errhandler(session_, MPI_ERR_ARG, ierr)
    SAME(calls, 1)
    SAME(seen_code, MPI_ERR_ARG)
    CHECK(seen_object)
    call MPI_Session_finalize(session_, ierr)
    call MPI_Errhandler_free(handler, ierr)
  end subroutine error_handlers

  subroutine generalized_requests()
    integer(kind=MPI_ADDRESS_KIND) :: state
    integer :: count
    logical :: flag
    REQUEST :: request
    STATUS :: stat
    state = 1000000000000_MPI_ADDRESS_KIND
    freed = -1
    cancelled = 0
    call MPI_Grequest_start(query_request, free_request, cancel_request, state, request, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Test(request, flag, stat, ierr)
    CHECK(.not. flag)
    call MPI_Cancel(request, ierr)
    SAME(cancelled, 1)
    call MPI_Grequest_complete(request, ierr)
    call MPI_Wait(request, stat, ierr)
    SAME(ierr, MPI_SUCCESS)
    SAME(TAG_OF(stat), 44)
    CHECK(seen_state == state)
    call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
    SAME(count, 3)
    ! The state is a copy that the callbacks share.
    SAME(freed, state + 1)
    CHECK(request == MPI_REQUEST_NULL)
  end subroutine generalized_requests

#ifdef METHOD_F08
  ! The library accepts data representations of programs, and calls their functions.
  subroutine representations()
    integer(kind=MPI_ADDRESS_KIND) :: bytes
    character(len=200) :: folder
    integer :: length, a(4), b(4)
    type(MPI_File) :: file
    bytes = 1
    call MPI_Register_datarep('negated ', convert, MPI_CONVERSION_FN_NULL, extent, bytes, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Register_datarep('negated', convert, MPI_CONVERSION_FN_NULL, extent, bytes, ierr)
    CLASS(MPI_ERR_DUP_DATAREP)
    call get_environment_variable('TMPDIR', folder, length)
    if (length == 0) folder = '/tmp'
    write (folder, '(2a,i0)') trim(folder), '/fortran_callbacks', rank
    call MPI_File_open(MPI_COMM_SELF, folder, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
        MPI_INFO_NULL, file, ierr)
    SAME(ierr, MPI_SUCCESS)
    a = [1, 2, 3, 4]
    call MPI_File_write_at(file, 0_MPI_OFFSET_KIND, a, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    call MPI_File_set_view(file, 0_MPI_OFFSET_KIND, MPI_INTEGER, MPI_INTEGER, 'negated', MPI_INFO_NULL, ierr)
    SAME(ierr, MPI_SUCCESS)
    calls = 0
    seen_type = .false.
    b = 0
    call MPI_File_read_at(file, 0_MPI_OFFSET_KIND, b, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(all(b == -a))
    CHECK(calls > 0 .and. seen_type)
    ! The null conversion stores data as it is.
    a = [5, 6, 7, 8]
    call MPI_File_write_at(file, 0_MPI_OFFSET_KIND, a, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    b = 0
    call MPI_File_read_at(file, 0_MPI_OFFSET_KIND, b, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    CHECK(all(b == -a))
    call MPI_File_close(file)
  end subroutine representations
#endif
end program fortran_callbacks
