//go:build linux

package gpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A program can use a MIG instance only if it can open the files of the GPU, of the GPU instance and of the
// compute instance. The driver numbers the last two in migMinors, and nvidia-smi or nvidia-modprobe
// creates them; this package does it too, since neither may be installed.
const (
	migMinors = "proc/driver/nvidia-caps/mig-minors"
	migFiles  = "dev/nvidia-caps"
	capsName  = "nvidia-caps" // the driver's name in /proc/devices
)

// instanceFiles returns the device files of an instance, apart from that of its GPU, and creates those that
// do not exist.
func instanceFiles(root string, minor int32, raw *RawInstance) ([]File, error) {
	if root == "" {
		root = "/"
	}
	data, err := os.ReadFile(filepath.Join(root, migMinors))
	if err != nil {
		return nil, fmt.Errorf("MIG: the driver shows no device numbers of instances: %w", err)
	}
	instance := fmt.Sprintf("gpu%d/gi%d", minor, raw.GPU)
	var files []File
	for _, name := range []string{instance + "/access", fmt.Sprintf("%s/ci%d/access", instance, raw.Compute)} {
		number, found := lookNumber(string(data), name)
		if !found {
			return nil, fmt.Errorf("MIG: %s has no device number of %s", migMinors, name)
		}
		path := filepath.Join(root, migFiles, "nvidia-cap"+strconv.Itoa(int(number)))
		if err := makeCapability(root, path, number); err != nil {
			return nil, fmt.Errorf("MIG: %w", err)
		}
		files = append(files, File{Host: path, Task: "/" + migFiles + "/" + filepath.Base(path)})
	}
	return files, nil
}

// makeCapability creates a device file as nvidia-modprobe does, unless it exists.
func makeCapability(root, path string, minor uint32) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	data, err := os.ReadFile(filepath.Join(root, "proc/devices"))
	if err != nil {
		return err
	}
	major, found := uint32(0), false
	for line := range strings.Lines(string(data)) { // "237 nvidia-caps"
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == capsName {
			n, err := strconv.ParseUint(fields[0], 10, 12)
			major, found = uint32(n), err == nil
		}
	}
	if !found {
		return fmt.Errorf("/proc/devices has no %s", capsName)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(path, unix.S_IFCHR|0o444, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("mknod %s: %w", path, err)
	}
	return os.Chmod(path, 0o444) // independent of the umask
}

// lookNumber returns the number in a line "name number".
func lookNumber(text, name string) (uint32, bool) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			n, err := strconv.ParseUint(fields[1], 10, 20) // minors have 20 bits
			return uint32(n), err == nil
		}
	}
	return 0, false
}
