package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/greylag/greylag/internal/config/strict"
)

// WriteFile atomically replaces a file that any user may read. It creates missing directories with
// mode 0755, regardless of the umask.
func WriteFile(path, text string) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it fails after the rename, as it should
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// makeFolder creates a directory that any user may read; an existing one does not change.
func makeFolder(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755))
}

// List returns words as a TOML list.
func List(words []string) string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = strconv.Quote(w)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// ControllersPath returns the path of the drop-in of the client's file in which the daemons of a
// host name the cluster's controllers.
func ControllersPath(client string) string { return filepath.Join(dropIns(client), "controllers.toml") }

const controllersHead = `# Written by gctl, and by the daemons of this host when the controllers change: do not edit.
# To set other controllers for the commands, set controllers in client.toml; this file is then
# removed.
`

// WriteControllers writes the controllers, HOST:PORT each, for the commands that read the client's
// file at client, to the drop-in at ControllersPath. If the file itself or another drop-in sets
// controllers, that setting remains in force and the drop-in is removed. It writes only changes.
func WriteControllers(client string, controllers []string) error {
	path := ControllersPath(client)
	set, err := setsControllers(client)
	if err != nil {
		return err
	}
	present, err := os.ReadFile(path)
	switch text := controllersHead + "controllers = " + List(controllers) + "\n"; {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write the list of controllers for the commands: %w", err)
	case set && err == nil:
		return os.Remove(path)
	case set || err == nil && bytes.Equal(present, []byte(text)):
		return nil
	default:
		return WriteFile(path, text)
	}
}

// setsControllers reports whether the client's file or a drop-in other than the daemons' sets
// controllers.
func setsControllers(client string) (bool, error) {
	files, err := filesOf(client, true)
	if err != nil {
		return false, err
	}
	var sources []strict.Source
	for _, file := range files {
		if file == ControllersPath(client) {
			continue
		}
		text, err := readFile(file)
		if err != nil {
			return false, err
		}
		sources = append(sources, strict.Source{Name: file, Text: text})
	}
	set, faults := strict.Sets(sources, "controllers")
	if len(faults) > 0 {
		return false, faults
	}
	return set, nil
}
