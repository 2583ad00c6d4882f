package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"
)

const (
	rsyncProgram = "rsync"
	// rsyncPath is where the program is: the path of the job does not count, since it is that of its image.
	rsyncPath = "/usr/local/bin:/usr/bin:/bin"
	// stillAlive is the interval at which a running rsync counts as progress: it has a timeout of its own.
	stillAlive = 5 * time.Second
)

// fromRsync copies a file or a directory from an rsync daemon. Only regular files and directories arrive.
func (s *stager) fromRsync(ctx context.Context, root *os.Root, c Copy) (int64, error) {
	dir, target := path.Dir(c.Path), "./"+path.Base(c.Path)
	if strings.HasSuffix(c.URL, "/") {
		dir, target = c.Path, "./"
	}
	if err := root.MkdirAll(dir, 0o777); err != nil {
		return 0, local(err)
	}
	return 0, s.rsync(ctx, root, dir, c.URL, c.URL, target)
}

// toRsync copies a file or a directory to an rsync daemon.
func (s *stager) toRsync(ctx context.Context, root *os.Root, c Copy) (int64, error) {
	if strings.HasSuffix(c.URL, "/") {
		if _, err := list(root, c.Path); err != nil { // it follows links: none leads out
			return 0, err
		}
		return 0, s.rsync(ctx, root, c.Path, c.URL, "./", c.URL)
	}
	f, size, err := openFile(root, c.Path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return size, s.rsync(ctx, root, path.Dir(c.Path), c.URL, "./"+path.Base(c.Path), c.URL)
}

// rsync runs the program in a directory below the root.
func (s *stager) rsync(ctx context.Context, root *os.Root, dir, address, from, to string) error {
	if err := checkHost(ctx, address); err != nil {
		return err
	}
	folder, err := root.Open(dir)
	if err != nil {
		return local(err)
	}
	defer folder.Close()
	_, err = s.retry(ctx, func(ctx context.Context, moved func()) (int64, error) {
		return 0, runRsync(ctx, folder, moved, from, to)
	})
	return err
}

// runRsync runs the program once.
func runRsync(ctx context.Context, folder *os.File, moved func(), from, to string) error {
	program, err := findRsync()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--recursive", "--times", "--copy-links", "--chmod=D755,Fu+rw,Fgo+r", "--no-motd", "--quiet",
		"--timeout=120", "--contimeout=30", "--", from, to)
	cmd.Dir = fmt.Sprintf("/proc/self/fd/%d", folder.Fd()) // wherever it is now
	cmd.Env = []string{"PATH=" + rsyncPath, "LC_ALL=C"}
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = time.Second
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	alive := time.NewTicker(stillAlive)
	defer alive.Stop()
	for {
		select {
		case <-alive.C:
			moved()
		case err := <-ended:
			return rsyncError(err, said.String())
		}
	}
}

// errNoRsync means that the node lacks the program.
var errNoRsync = errors.New("the program rsync is not installed on the node")

// findRsync returns the path of the program.
func findRsync() (string, error) {
	for dir := range strings.SplitSeq(rsyncPath, ":") {
		if info, err := os.Stat(path.Join(dir, rsyncProgram)); err == nil && info.Mode().IsRegular() {
			return path.Join(dir, rsyncProgram), nil
		}
	}
	return "", &temporaryError{err: errNoRsync} // another node may have it
}

// rsyncTemporary are the exit statuses of rsync(1) after which another try may succeed: socket I/O, protocol, timeouts.
var rsyncTemporary = map[int]bool{10: true, 12: true, 30: true, 35: true}

// rsyncError describes the end of the program by its first line.
func rsyncError(err error, said string) error {
	exit := (*exec.ExitError)(nil)
	if err == nil || !errors.As(err, &exit) {
		return err
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	err = fmt.Errorf("rsync ended with status %d: %s", exit.ExitCode(), line)
	if rsyncTemporary[exit.ExitCode()] {
		return &temporaryError{err: err}
	}
	return err
}

// checkHost refuses a host with an address that is never used.
func checkHost(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", u.Hostname())
	if err != nil {
		return &temporaryError{err: err}
	}
	for _, ip := range found {
		if err := checkAddress(netip.AddrPortFrom(ip, 873).String()); err != nil {
			return err
		}
	}
	return nil
}
