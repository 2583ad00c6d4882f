package agent

import (
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
	var shown []tasks.Mount
	for _, dir := range folders {
		target := filepath.Clean(dir)
		switch {
		case target == "/tmp" || target == "/var/tmp":
			spec.PrivateTmp = spec.PrivateTmp && image
		case temporary(target), image && mayShow(target):
			// The source is as the user wrote it: after a link, ".." means another folder.
			shown = append(shown, tasks.Mount{Source: dir, Target: target, Optional: true})
		}
	}
	if !spec.PrivateTmp && !image {
		return
	}
	// Outer folders come before those inside them.
	slices.SortStableFunc(shown, func(a, b tasks.Mount) int { return strings.Compare(a.Target, b.Target) })
	spec.Mounts = append(spec.Mounts, slices.CompactFunc(shown, func(a, b tasks.Mount) bool { return a.Target == b.Target })...)
}

// folder returns the path of a file's folder, not shortened: see shape.
func folder(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }

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
