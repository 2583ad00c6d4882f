package health

import (
	"fmt"
	"os"
	"syscall"
)

// leastFree is the free space below which a directory of the node counts as full.
const leastFree = 16 << 20

// Disk returns why the node cannot write to a directory of its own, which exists; "" if it can.
func Disk(dir string) string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Sprintf("%s: %v", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize); free < leastFree {
		return fmt.Sprintf("%s has %d MiB of free space, at least %d MiB are needed", dir, free>>20, leastFree>>20)
	}
	file, err := os.CreateTemp(dir, ".health-")
	if err != nil {
		return err.Error()
	}
	_, err = file.WriteString("ok")
	if e := file.Close(); err == nil {
		err = e
	}
	if e := os.Remove(file.Name()); err == nil {
		err = e
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
