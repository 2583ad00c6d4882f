package agent

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
)

// attempts returns the attempt that a call came from.
type attempts struct{}

func (attempts) ForwardFor(w http.ResponseWriter, _ *http.Request, a auth.Attempt, _ uint32) {
	_, _ = io.WriteString(w, a.String())
}

// withSockets serves the commands inside a node's tasks.
func withSockets(n *node) {
	n.cfg.Sockets = auth.NewJobSockets(filepath.Join(n.dir, "sockets"), attempts{}, slog.New(slog.DiscardHandler))
}

// call calls the socket of a task as the user of this process.
func (n *node) call(attempt string) (status int, text string, err error) {
	conn, err := net.Dial("unix", filepath.Join(n.dir, "sockets", attempt, auth.SocketFile))
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, "POST /greylag.v1.JobService/ListJobs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// TestTasksHaveASocket checks that each task finds its socket in its environment, that the next
// daemon serves it, and that it ends with the task.
func TestTasksHaveASocket(t *testing.T) {
	onEach(t, withSockets, func(t *testing.T, n *node) {
		n.want(at(5, 2), "#!/bin/sh\ntest -S \"$GREYLAG_SOCKET\" && echo \"$GREYLAG_SOCKET\" >up\nuntil [ -e go ]; do sleep 0.02; done\n",
			func(w *greylagv1.WantedTask) { w.WorkDir = n.home })
		n.reach(at(5, 2), "started")
		waitFor(t, "the task to run", func() bool { return strings.HasSuffix(n.read("up"), "\n") })
		want, path := http.StatusOK, filepath.Join(n.dir, "sockets", "5.2", auth.SocketFile)
		if n.cfg.Isolated { // the task runs as another user
			want, path = http.StatusForbidden, "/dev/greylag/job/socket"
		}
		if got := n.read("up"); got != path+"\n" {
			t.Errorf("the task has %q, want %q", got, path)
		}
		for range 2 {
			waitFor(t, "the daemon to serve the task", func() bool { _, _, err := n.call("5.2"); return err == nil })
			if status, text, err := n.call("5.2"); status != want || status == http.StatusOK && text != "5.2" {
				t.Errorf("%d %q, %v, want %d", status, text, err, want)
			}
			n.stop()
			n.start()
		}
		touch(t, n, "go")
		n.settled(at(5, 2))
		if _, _, err := n.call("5.2"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket of a task that has ended: %v", err)
		}
	})
}
