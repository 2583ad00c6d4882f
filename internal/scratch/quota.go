//go:build linux

package scratch

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of linux/dqblk_xfs.h, linux/quota.h and linux/fs.h. ext4 and XFS both have this interface.
const (
	projectQuota  = 2      // PRJQUOTA
	getState      = 0x5805 // Q_XGETQSTAT
	setLimits     = 0x5804 // Q_XSETQLIM
	enforced      = 1 << 5 // FS_QUOTA_PDQ_ENFD
	quotaVersion  = 1      // FS_DQUOT_VERSION
	projectRecord = 1 << 1 // FS_PROJ_QUOTA
	allLimits     = 15     // FS_DQ_ISOFT, FS_DQ_IHARD, FS_DQ_BSOFT, FS_DQ_BHARD
	basicBlock    = 512    // unit of limits, in bytes

	getAttributes  = 0x801c581f // FS_IOC_FSGETXATTR
	setAttributes  = 0x401c5820 // FS_IOC_FSSETXATTR
	projectInherit = 0x200      // FS_XFLAG_PROJINHERIT
)

// quotaState is struct fs_quota_stat.
type quotaState struct {
	version int8
	flags   uint16
	_       [76]byte
}

// quotaLimits is struct fs_disk_quota.
type quotaLimits struct {
	version, kind int8
	fields        uint16
	id            uint32
	blockHard     uint64
	blockSoft     uint64
	inodeHard     uint64
	inodeSoft     uint64
	_             [2]uint64 // numbers of blocks and inodes
	_             [2]int32
	_             [2]uint16
	_             [4]int8
	_             [3]uint64
	_             int32
	_             uint16
	_             int16
	_             [8]byte
}

// attributes is struct fsxattr.
type attributes struct {
	flags   uint32
	_       [2]uint32
	project uint32
	_       uint32
	_       [8]byte
}

// firstProject is the lowest project ID of scratch space. The highest is 2*firstProject - 1.
const firstProject = 1 << 30

// project returns the project ID of an attempt. Two attempts share an ID only if their job IDs are equal
// modulo 2^26 and their numbers are equal modulo 16.
func project(a Attempt) uint32 {
	return firstProject | uint32(a.Job<<4|uint64(a.Number&15))&(firstProject-1)
}

// enforcesQuotas reports whether the file system of an open directory enforces project quotas.
func enforcesQuotas(f *os.File) bool {
	var state quotaState
	err := quotactl(f, getState, 0, unsafe.Pointer(&state))
	return err == nil && state.flags&enforced != 0
}

// setLimit assigns an open directory, and all files created in it later, to a project, and sets its limit.
func setLimit(f *os.File, project uint32, bytes, inodes uint64) error {
	if err := limitProject(f, project, bytes, inodes); err != nil {
		return err
	}
	var attr attributes
	if err := ioctl(f, getAttributes, unsafe.Pointer(&attr)); err != nil {
		return err
	}
	attr.project, attr.flags = project, attr.flags|projectInherit
	return ioctl(f, setAttributes, unsafe.Pointer(&attr))
}

// minInodes is the lowest limit of inodes.
const minInodes = 10_000

// inodeShare returns the limit of inodes for a limit in bytes: the same share of the file
// system of dir, which must be in no project. 0 is no limit.
func inodeShare(dir string, bytes uint64) (uint64, error) {
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	total := float64(system.Blocks) * float64(system.Bsize)
	if bytes == 0 || system.Files == 0 || total == 0 {
		return 0, nil
	}
	return max(minInodes, uint64(float64(system.Files)*min(1, float64(bytes)/total))), nil
}

// clearInheritance makes an open directory accept files of other projects, which a user may have chosen.
func clearInheritance(f *os.File) error {
	var attr attributes
	if err := ioctl(f, getAttributes, unsafe.Pointer(&attr)); err != nil {
		return err
	}
	attr.flags &^= projectInherit
	return ioctl(f, setAttributes, unsafe.Pointer(&attr))
}

// clearLimit removes the limit of a project of the file system of an open directory.
func clearLimit(f *os.File, project uint32) error { return limitProject(f, project, 0, 0) }

func limitProject(f *os.File, project uint32, bytes, inodes uint64) error {
	limit := quotaLimits{version: quotaVersion, kind: projectRecord, fields: allLimits, id: project, blockHard: bytes / basicBlock, inodeHard: inodes}
	return quotactl(f, setLimits, project, unsafe.Pointer(&limit))
}

func ioctl(f *os.File, request uintptr, data unsafe.Pointer) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(data))
	runtime.KeepAlive(f)
	if errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}

// quotactl runs a project quota command on the file system of an open file. Kernels before 5.14 have no
// quotactl_fd(2) and need the block device.
func quotactl(f *os.File, command int, id uint32, data unsafe.Pointer) error {
	call := uintptr(command<<8 | projectQuota)
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), call, uintptr(id), uintptr(data), 0, 0)
	if errno == unix.ENOSYS {
		errno = quotactlDevice(f, call, id, data)
	}
	runtime.KeepAlive(f)
	if errno != 0 {
		return os.NewSyscallError("quotactl", errno)
	}
	return nil
}

func quotactlDevice(f *os.File, call uintptr, id uint32, data unsafe.Pointer) unix.Errno {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return unix.ENOSYS
	}
	device, err := unix.BytePtrFromString(fmt.Sprintf("/dev/block/%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)))
	if err != nil {
		return unix.ENOSYS
	}
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, call, uintptr(unsafe.Pointer(device)), uintptr(id), uintptr(data), 0, 0)
	if errors.Is(errno, unix.ENOENT) { // the file system has no block device
		return unix.ENOSYS
	}
	return errno
}
