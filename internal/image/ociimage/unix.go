package ociimage

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// applets lists the Unix programs of the image.
var applets = []string{"sh", "cat", "chmod", "cp", "date", "dd", "df", "echo", "env", "false", "grep",
	"head", "hostname", "id", "kill", "ln", "ls", "mkdir", "mknod", "mount", "mv", "nproc", "printenv", "ps", "pwd", "rm",
	"sed", "seq", "sleep", "sort", "stat", "tail", "tee", "test", "touch", "tr", "true", "uname", "wc", "yes"}

// Unix returns a small Unix: the machine's static busybox or, since not every distribution has one,
// its shell and programs with their libraries.
func Unix() (Image, error) {
	programs, err := busybox()
	if programs == nil && err == nil {
		programs, err = ownPrograms()
	}
	if err != nil {
		return Image{}, err
	}
	return Image{
		Name: "small", Cmd: []string{"sh"},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "GREYLAG_IMAGE=small"},
		Files: append([]File{
			{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/sh\n")},
			{Path: "etc/greylag-image", Mode: 0o644, Data: []byte("small test image\n")},
			{Path: "tmp", Mode: 0o1777, Dir: true}, {Path: "var/tmp", Mode: 0o1777, Dir: true},
			{Path: "root", Mode: 0o700, Dir: true}, {Path: "home", Mode: 0o755, Dir: true},
			{Path: "usr/bin/env", Mode: 0o777, Link: "/bin/env"},
		}, programs...),
	}, nil
}

// busybox returns all programs in one file; none if the machine has no busybox.
func busybox() ([]File, error) {
	program, err := exec.LookPath("busybox")
	if err != nil {
		return nil, nil
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("busybox: %w", err)
	}
	files := []File{{Path: "bin/busybox", Mode: 0o755, Data: data}}
	for _, applet := range applets {
		files = append(files, File{Path: "bin/" + applet, Mode: 0o777, Link: "busybox"})
	}
	return files, nil
}

// ownPrograms returns the programs of the machine and their dependencies.
func ownPrograms() ([]File, error) {
	var files []File
	has := map[string]bool{}
	var add func(name, from string) error
	add = func(name, from string) error {
		if has[name] {
			return nil
		}
		has[name] = true
		data, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("a program for an image: %w", err)
		}
		files = append(files, File{Path: name, Mode: 0o755, Data: data})
		for _, need := range needs(from, data) {
			if err := add(strings.TrimPrefix(need, "/"), need); err != nil {
				return err
			}
		}
		return nil
	}
	for _, applet := range applets {
		from, err := exec.LookPath(applet)
		if err != nil {
			continue
		}
		if err := add("bin/"+applet, from); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// needs lists the files without which a program does not start: its interpreter or its libraries.
// Some distributions have small programs as scripts of a large one.
func needs(program string, data []byte) (files []string) {
	words := strings.Fields(string(data[:min(len(data), 256)]))
	if bytes.HasPrefix(data, []byte("#!")) && len(words) > 0 {
		return []string{strings.TrimPrefix(words[0], "#!")}
	}
	out, err := exec.Command("ldd", program).Output()
	if err != nil {
		return nil // linked statically
	}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	return files
}
