//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Directories of the driver's files in a task with an image. NVIDIA's own images have both in their search paths.
const (
	insideLibraries = "/usr/local/nvidia/lib64"
	insideTools     = "/usr/local/nvidia/bin"
)

// ErrNoDriverFiles means that this host has GPUs, but not the libraries that programs need to use them.
var ErrNoDriverFiles = errors.New("the dynamic linker does not find libcuda.so.1 (ldconfig -p)")

// driverLibraries are the names of the driver's libraries for computing, video and management. Images have the
// libraries of CUDA, but never these, which must have the version of the kernel's driver.
var driverLibraries = []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*"}

// listTime bounds the list of the libraries.
const listTime = 10 * time.Second

// DriverFiles lists the files of NVIDIA's driver on this host that a task with an image needs: each library under
// the name by which programs load it, and nvidia-smi. The error wraps [ErrNoDriverFiles] if there are none.
func DriverFiles() ([]Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	list, err := exec.CommandContext(ctx, "/sbin/ldconfig", "-p").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoDriverFiles, err)
	}
	files, err := driverFiles(string(list))
	if err != nil {
		return nil, err
	}
	if program, err := exec.LookPath("nvidia-smi"); err == nil {
		if host, err := filepath.EvalSymlinks(program); err == nil {
			files = append(files, Node{HostPath: host, Path: path.Join(insideTools, "nvidia-smi")})
		}
	}
	return files, nil
}

// driverFiles finds the driver's libraries in the output of ldconfig -p. If a name has several files, the dynamic
// linker uses the first one.
func driverFiles(list string) ([]Node, error) {
	var files []Node
	seen := map[string]bool{}
	for line := range strings.Lines(list) { // "	libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1"
		name, rest, found := strings.Cut(strings.TrimSpace(line), " (")
		kind, host, arrow := strings.Cut(rest, ") => ")
		if !found || !arrow || seen[name] || !ofThisMachine(kind) || !isDriverLibrary(name) {
			continue
		}
		host, err := filepath.EvalSymlinks(host)
		if errors.Is(err, os.ErrNotExist) { // the list is older than the driver
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("driver library %s: %w", name, err)
		}
		seen[name] = true
		files = append(files, Node{HostPath: host, Path: path.Join(insideLibraries, name)})
	}
	if !seen["libcuda.so.1"] {
		return nil, ErrNoDriverFiles
	}
	return files, nil
}

// ofThisMachine reports whether a library has the word size of this program: 32-bit libraries have no machine.
func ofThisMachine(kind string) bool {
	machine := map[string]string{"amd64": "x86-64", "arm64": "AArch64"}[runtime.GOARCH]
	return slices.Contains(strings.FieldsFunc(kind, func(r rune) bool { return r == ',' || r == ' ' }), machine)
}

func isDriverLibrary(name string) bool {
	return slices.ContainsFunc(driverLibraries, func(pattern string) bool {
		match, _ := path.Match(pattern, name) // the patterns are valid
		return match
	})
}
