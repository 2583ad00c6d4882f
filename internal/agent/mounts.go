package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	tasks "github.com/greylag/greylag/internal/runtime"
)

// shape decides what of the host's file system a task sees.
//
// Every task has a /tmp and /var/tmp of its own. Where its working directory
// or its output lies below one of the host's, that folder is shown in it, so
// that a job submitted from /tmp/x works as the user expects; where it is /tmp
// itself, the task has the host's.
//
// A task in an image sees the user's home, its working directory and the
// folders of its output, under their own names.
func (a *Agent) shape(spec *tasks.Spec, image bool, home string) {
	if !a.cfg.Isolated {
		return
	}
	spec.PrivateTmp = true
	folders := []string{spec.WorkDir, folder(spec.Stdin), folder(spec.Stdout), folder(spec.Stderr)}
	if image {
		folders = append(folders, home)
	}
	var shown []string
	for _, dir := range folders {
		dir = filepath.Clean(dir)
		switch {
		case temporary(dir) && (dir == "/tmp" || dir == "/var/tmp"):
			spec.PrivateTmp = spec.PrivateTmp && image
		case temporary(dir), image && mayShow(dir):
			if info, err := os.Stat(dir); err == nil && info.IsDir() {
				shown = append(shown, dir)
			}
		}
	}
	if !spec.PrivateTmp && !image {
		return
	}
	slices.Sort(shown) // outer folders before those inside them
	for _, dir := range slices.Compact(shown) {
		spec.Mounts = append(spec.Mounts, tasks.Mount{Source: dir, Target: dir})
	}
}

func folder(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Dir(path)
}

// temporary tells whether dir is in a folder that tasks have for themselves.
func temporary(dir string) bool {
	for _, root := range []string{"/tmp", "/var/tmp"} {
		if dir == root || strings.HasPrefix(dir, root+"/") {
			return true
		}
	}
	return false
}

// mayShow tells whether a folder of the host may lie over an image's. Those
// that hold the system are the image's own.
func mayShow(dir string) bool {
	if !strings.HasPrefix(dir, "/") {
		return false
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(dir, "/"), "/")
	switch first {
	case "", "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "opt", "proc", "run", "sbin", "sys", "usr":
		return false
	case "root":
		return true
	}
	return rest != "" || first != "var"
}
