package express

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long an answer may take before the full program asks again and prints why it
	// takes so long.
	patience = 2 * time.Second
	// mostRequest and mostAnswer are the largest request that gauthd forwards, and a size that no
	// answer reaches.
	mostRequest, mostAnswer = 256 << 10, 64 << 10
)

// errOther marks an answer that this package does not understand.
var errOther = errors.New("not a plain answer")

// post submits through gauthd and returns the answer.
func post(socket string, request []byte) ([]byte, error) {
	if len(request) > mostRequest {
		return nil, errOther
	}
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	message := append(make([]byte, 0, 256+len(request)), "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\n"+
		"Host: gauthd\r\nUser-Agent: gsubmit\r\nAccept-Encoding: identity\r\nConnect-Protocol-Version: 1\r\n"+
		"Content-Type: application/proto\r\nConnection: close\r\nContent-Length: "...)
	message = append(strconv.AppendInt(message, int64(len(request)), 10), "\r\n\r\n"...)
	if _, err := conn.Write(append(message, request...)); err != nil {
		return nil, err
	}
	return readAnswer(conn)
}

// dial connects to a Unix socket. Package net would do the same, and make this
// process start a tenth of a millisecond later.
func dial(socket string) (*os.File, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: socket}); err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	return os.NewFile(uintptr(fd), socket), nil // deadlines work, since it does not block
}

// readAnswer reads an HTTP answer of gauthd's form: 200, with Content-Length, without an encoding.
func readAnswer(from io.Reader) ([]byte, error) {
	r := bufio.NewReader(io.LimitReader(from, mostAnswer))
	status, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200 ") {
		return nil, errOther
	}
	length := -1
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "":
			if length < 0 || length > mostAnswer {
				return nil, errOther
			}
			body := make([]byte, length)
			_, err := io.ReadFull(r, body)
			return body, err
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return nil, errOther
			}
		case "content-type":
			if value != "application/proto" {
				return nil, errOther
			}
		case "transfer-encoding", "content-encoding":
			return nil, errOther
		}
	}
}
