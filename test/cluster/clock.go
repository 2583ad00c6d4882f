package cluster

import (
	"os"
	"path/filepath"
	"time"
)

// clockVariable names the file with the clock offset of a gctld built with the tag clockfault.
const clockVariable = "GREYLAG_CLOCK_OFFSET"

// KeyFile holds the private keys of the CAs.
func (ctl *Controller) KeyFile() string { return filepath.Join(ctl.dir, "pki", "ca-key.pem") }

func (ctl *Controller) clockFile() string { return filepath.Join(ctl.dir, "clock") }

// SetClock sets the offset of the controller's clock from the machine's; 0 for none. It needs
// Options.Clocks.
func (ctl *Controller) SetClock(offset time.Duration) error {
	temporary := ctl.clockFile() + ".new"
	if err := os.WriteFile(temporary, []byte(offset.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, ctl.clockFile())
}
