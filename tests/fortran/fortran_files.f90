! Files: individual, shared and explicit offsets, views, collective and nonblocking access.
! test: ranks=2 methods=mpif.h,mpi,mpi_f08 variants=check
#include "methods.h"
#include "check.h"
program fortran_files
  USE_METHOD
  implicit none
  INCLUDE_METHOD
  integer, parameter :: wide = MPI_OFFSET_KIND
  character(len=300) :: path
  integer :: rank, ranks, failures, ierr, length

  call start()
  call get_environment_variable('TMPDIR', path, length)
  if (length == 0) path = '/tmp'
  path = trim(path) // '/fortran_files'
  call access_()
  call views()
  call shared_pointer()
  call further()
  call taken_in_turns()
  call errors()
  call finish()
contains
#include "check.inc"

  subroutine access_()
    integer :: a(5), b(5), i, count, mode
    integer(kind=wide) :: offset, bytes
    logical :: flag
    FILE_HANDLE :: file
    GROUP :: group_
    INFO :: info_
    REQUEST :: request
    STATUS :: stat
    ! Blanks at the end are no part of the name.
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
    SAME(ierr, MPI_SUCCESS)
    CHECK(file /= MPI_FILE_NULL)
    a = [(rank * 100 + i, i = 1, 5)]
    offset = 20 * rank
    call MPI_File_write_at_all(file, offset, a, 5, MPI_INTEGER, stat, ierr)
    call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
    SAME(count, 5)
    call MPI_File_sync(file, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_get_size(file, bytes, ierr)
    SAME(bytes, 40)
    b = -1
    offset = 20 * (1 - rank)
    call MPI_File_seek(file, offset, MPI_SEEK_SET, ierr)
    call MPI_File_read(file, b, 2, MPI_INTEGER, stat, ierr)
    CHECK(all(b(1:3) == [(1 - rank) * 100 + 1, (1 - rank) * 100 + 2, -1]))
    call MPI_File_get_position(file, offset, ierr)
    SAME(offset, 20 * (1 - rank) + 8)
    call MPI_File_iread(file, b, 1, MPI_INTEGER, request, ierr)
    call MPI_Wait(request, stat, ierr)
    call MPI_F_sync_reg(b)
    SAME(b(1), (1 - rank) * 100 + 3)
    call MPI_File_read_all(file, b, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    SAME(b(1), (1 - rank) * 100 + 4)
    b = -1
    call MPI_File_read_at_all_begin(file, 0_wide, b, 5, MPI_INTEGER, ierr)
    call MPI_File_read_at_all_end(file, b, stat, ierr)
    call MPI_F_sync_reg(b)
    CHECK(all(b == [1, 2, 3, 4, 5]))
    call MPI_File_set_atomicity(file, .true., ierr)
    call MPI_File_get_atomicity(file, flag, ierr)
    CHECK(flag)
    call MPI_File_set_atomicity(file, .false., ierr)
    call MPI_File_get_atomicity(file, flag, ierr)
    CHECK(.not. flag)
    call MPI_File_get_amode(file, mode, ierr)
    SAME(mode, MPI_MODE_CREATE + MPI_MODE_RDWR)
    call MPI_File_get_group(file, group_, ierr)
    call MPI_Group_size(group_, count, ierr)
    SAME(count, 2)
    call MPI_Group_free(group_, ierr)
    call MPI_File_get_info(file, info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_free(info_, ierr)
    ! Behind the end there is nothing to read.
    call MPI_File_read_at(file, 1000_wide, b, 5, MPI_INTEGER, stat, ierr)
    call MPI_Get_count(stat, MPI_INTEGER, count, ierr)
    SAME(count, 0)
    call MPI_File_set_size(file, 12_wide, ierr)
    call MPI_File_preallocate(file, 16_wide, ierr)
    call MPI_File_get_size(file, bytes, ierr)
    SAME(bytes, 16)
    call MPI_File_close(file, ierr)
    CHECK(file == MPI_FILE_NULL)
  end subroutine access_

  ! The view of each rank has every other pair of integers.
  subroutine views()
    character(len=MPI_MAX_DATAREP_STRING) :: name
    integer :: a(4), b(8), i
    integer(kind=MPI_ADDRESS_KIND) :: extent
    integer(kind=wide) :: start_, offset
    DATATYPE :: pairs, whole, etype, filetype
    FILE_HANDLE :: file
    call MPI_Type_contiguous(2, MPI_INTEGER, pairs, ierr)
    call MPI_Type_create_resized(pairs, 0_MPI_ADDRESS_KIND, 16_MPI_ADDRESS_KIND, whole, ierr)
    call MPI_Type_commit(whole, ierr)
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
    start_ = 8 * rank
    call MPI_File_set_view(file, start_, MPI_INTEGER, whole, 'native   ', MPI_INFO_NULL, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_File_get_view(file, offset, etype, filetype, name, ierr)
    SAME(offset, start_)
    CHECK(etype == MPI_INTEGER)
    CHECK(name == 'native')
    a = [(rank * 10 + i, i = 1, 4)]
    call MPI_File_write_all(file, a, 4, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    call MPI_File_get_byte_offset(file, 2_wide, offset, ierr)
    SAME(offset, 8 * rank + 16)
    call MPI_File_get_type_extent(file, MPI_INTEGER, extent, ierr)
    SAME(extent, 4)
    call MPI_File_sync(file, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_set_view(file, 0_wide, MPI_BYTE, MPI_BYTE, 'native', MPI_INFO_NULL, ierr)
    call MPI_File_read_at(file, 0_wide, b, 8, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    CHECK(all(b == [1, 2, 11, 12, 3, 4, 13, 14]))
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_set_view(file, 0_wide, MPI_INTEGER, MPI_INTEGER, 'external32', MPI_INFO_NULL, ierr)
    call MPI_File_write_at(file, 0_wide + rank, rank + 1, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    call MPI_File_sync(file, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_set_view(file, 0_wide, MPI_BYTE, MPI_BYTE, 'native', MPI_INFO_NULL, ierr)
    call MPI_File_read_at(file, 0_wide, b, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    CHECK(all(b(1:2) == [16777216, 33554432]))
    call MPI_File_close(file, ierr)
    call MPI_Type_free(whole, ierr)
    call MPI_Type_free(pairs, ierr)
  end subroutine views

  subroutine shared_pointer()
    integer :: a(2), b(4)
    integer(kind=wide) :: offset
    FILE_HANDLE :: file
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
        MPI_INFO_NULL, file, ierr)
    a = rank * 10 + [1, 2]
    call MPI_File_write_ordered(file, a, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_File_get_position_shared(file, offset, ierr)
    SAME(offset, 16)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_seek_shared(file, 0_wide, MPI_SEEK_SET, ierr)
    call MPI_File_read_ordered_begin(file, b, 2, MPI_INTEGER, ierr)
    call MPI_File_read_ordered_end(file, b, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    CHECK(all(b(1:2) == a))
    call MPI_File_close(file, ierr)
  end subroutine shared_pointer

  ! Every nonblocking and split access once; each rank writes its half of four integers.
  subroutine further()
    integer, save :: a(2), b(2)
    integer :: how
    integer(kind=wide) :: offset
    FILE_HANDLE :: file
    REQUEST :: request
    do how = 1, 7
      call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
          MPI_INFO_NULL, file, ierr)
      SAME(ierr, MPI_SUCCESS)
      offset = 8 * rank
      call MPI_File_seek(file, offset, MPI_SEEK_SET, ierr)
      a = how * 100 + rank * 10 + [1, 2]
      b = -1
      select case (how)
      case (1)
        call MPI_File_iwrite(file, a, 2, MPI_INTEGER, request, ierr)
      case (2)
        call MPI_File_iwrite_all(file, a, 2, MPI_INTEGER, request, ierr)
      case (3)
        call MPI_File_iwrite_at(file, offset, a, 2, MPI_INTEGER, request, ierr)
      case (4)
        call MPI_File_iwrite_at_all(file, offset, a, 2, MPI_INTEGER, request, ierr)
      case (5)
        call MPI_File_write(file, a, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
      case (6)
        call MPI_File_write_all_begin(file, a, 2, MPI_INTEGER, ierr)
        call MPI_File_write_all_end(file, a, MPI_STATUS_IGNORE, ierr)
      case (7)
        call MPI_File_write_ordered_begin(file, a, 2, MPI_INTEGER, ierr)
        call MPI_File_write_ordered_end(file, a, MPI_STATUS_IGNORE, ierr)
      end select
      SAME(ierr, MPI_SUCCESS)
      if (how <= 4) call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
      call MPI_File_sync(file, ierr)
      call MPI_Barrier(MPI_COMM_WORLD, ierr)
      call MPI_File_seek(file, offset, MPI_SEEK_SET, ierr)
      select case (how)
      case (1)
        call MPI_File_read_at_all(file, offset, b, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
      case (2)
        call MPI_File_iread_all(file, b, 2, MPI_INTEGER, request, ierr)
      case (3)
        call MPI_File_iread_at(file, offset, b, 2, MPI_INTEGER, request, ierr)
      case (4)
        call MPI_File_iread_at_all(file, offset, b, 2, MPI_INTEGER, request, ierr)
      case (5)
        call MPI_File_read_ordered(file, b, 2, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
      case (6, 7)
        call MPI_File_read_all_begin(file, b, 2, MPI_INTEGER, ierr)
        call MPI_File_read_all_end(file, b, MPI_STATUS_IGNORE, ierr)
      end select
      SAME(ierr, MPI_SUCCESS)
      if (how >= 2 .and. how <= 4) call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
      call MPI_F_sync_reg(b)
      CHECK(all(a == b))
      call MPI_File_close(file, ierr)
    end do
  end subroutine further

  ! The shared pointer moves by each access of any rank.
  subroutine taken_in_turns()
    integer, save :: a(1), b(1)
    integer(kind=wide) :: offset
    FILE_HANDLE :: file
    INFO :: info_
    ERRHANDLER :: handler
    REQUEST :: request
    call MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE + MPI_MODE_RDWR + MPI_MODE_DELETE_ON_CLOSE, &
        MPI_INFO_NULL, file, ierr)
    a = 5
    call MPI_File_write_shared(file, a, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    call MPI_File_iwrite_shared(file, a, 1, MPI_INTEGER, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_File_sync(file, ierr)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_get_position_shared(file, offset, ierr)
    SAME(offset, 16)
    call MPI_Barrier(MPI_COMM_WORLD, ierr)
    call MPI_File_seek_shared(file, 0_wide, MPI_SEEK_SET, ierr)
    b = -1
    call MPI_File_read_shared(file, b, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    SAME(b(1), 5)
    b = -1
    call MPI_File_iread_shared(file, b, 1, MPI_INTEGER, request, ierr)
    call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
    call MPI_F_sync_reg(b)
    SAME(b(1), 5)
    call MPI_File_get_info(file, info_, ierr)
    call MPI_File_set_info(file, info_, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_Info_free(info_, ierr)
    call MPI_File_get_errhandler(file, handler, ierr)
    CHECK(handler == MPI_ERRORS_RETURN)
    call MPI_File_call_errhandler(file, MPI_ERR_ARG, ierr)
    SAME(ierr, MPI_SUCCESS)
    call MPI_File_close(file, ierr)
  end subroutine taken_in_turns

  subroutine errors()
    integer :: b(1)
    FILE_HANDLE :: file
    call MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, file, ierr)
    CLASS(MPI_ERR_NO_SUCH_FILE)
    call MPI_File_delete(path, MPI_INFO_NULL, ierr)
    CLASS(MPI_ERR_NO_SUCH_FILE)
    call MPI_File_read(MPI_FILE_NULL, b, 1, MPI_INTEGER, MPI_STATUS_IGNORE, ierr)
    CLASS(MPI_ERR_FILE)
  end subroutine errors
end program fortran_files
