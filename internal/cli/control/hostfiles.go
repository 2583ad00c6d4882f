package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// writeOnce writes a file that anyone may read, unless there is one already: what
// an administrator wrote stays. It reports whether it wrote.
func writeOnce(path, text string) (bool, error) {
	if _, err := os.Stat(path); err == nil {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, writeFile(path, text)
}

// writeFile replaces a file so that, whatever crashes, the old or the new is there.
func writeFile(path, text string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed, as it should
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// makeFolder makes a folder that everybody may read, whatever the umask of who runs gctl; one
// that is there stays as it is.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755))
}

// clientText is a file for the commands of this host.
func clientText(controllers []string, ca, socket string) string {
	return fmt.Sprintf("# Written by gctl; yours to change. Every setting is explained in client.toml among\n# the examples.\ncontrollers = [%s]\nca_file = %q\nauth_socket = %q\n",
		quoted(controllers), ca, socket)
}

// quoted is a list as TOML has it, without the brackets.
func quoted(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strconv.Quote(w)
	}
	return strings.Join(all, ", ")
}
