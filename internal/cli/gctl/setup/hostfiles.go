package setup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/greylag/greylag/internal/client"
	"github.com/greylag/greylag/internal/config"
)

// writeOnce writes a file that any user may read, unless it exists: it never changes what an
// administrator wrote. It reports whether it wrote.
func writeOnce(path, text string) (bool, error) {
	if _, err := os.Stat(path); err == nil {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, config.WriteFile(path, text)
}

// setting is a key of a daemon's file and its value as TOML.
type setting struct{ key, value string }

func (s setting) String() string { return s.key + " = " + s.value }

// head returns the first lines of a file that gctl writes: where its settings are explained.
func head(file, page, packaged string) string {
	return fmt.Sprintf("# Written by gctl; you may edit it. man %s explains every setting, and\n# /usr/share/doc/%s/examples/%s is an example.\n", page, packaged, file)
}

// daemonText returns a daemon's file with these settings.
func daemonText(program string, settings []setting) string {
	text := head(program+".toml", program+".toml", packages[program])
	for _, s := range settings {
		text += s.String() + "\n"
	}
	return text
}

// clientText is a file for the commands of this host.
func clientText(ca, socket string) string {
	return head("client.toml", "greylag-client.toml", packages["gauthd"]) + fmt.Sprintf("# The controllers are in client.d/controllers.toml, which the daemons of this host update.\n"+
		"ca_file = %q\nauth_socket = %q\n", ca, socket)
}

// hostFiles are the paths of the commands' files.
type hostFiles struct{ client, ca, socket string }

// writeClient writes the files that the commands of this host read, and stores in pkiDir what the
// daemon needs to keep them current.
func (t commands) writeClient(files hostFiles, authority, pkiDir string, controllers []string) error {
	if err := config.WriteFile(files.ca, authority); err != nil {
		return err
	}
	written, err := writeOnce(files.client, clientText(files.ca, files.socket))
	if err != nil {
		return err
	}
	if err := client.RecordCommands(pkiDir, files.client); err != nil {
		return err
	}
	known, err := client.OpenKnown(pkiDir, nil)
	if err != nil {
		return err
	}
	if err := known.Learn(controllers); err != nil || written {
		return err
	}
	t.Note("%s exists and was not changed", files.client)
	present, err := config.LoadClient(files.client)
	if err != nil {
		return wrongFile(err)
	}
	if !overlap(present.Controllers, controllers) {
		t.Note("it names none of the controllers; add to it: controllers = %s", config.List(controllers))
	}
	return nil
}
