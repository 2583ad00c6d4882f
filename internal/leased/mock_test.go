package leased

import (
	"net"
	"os/exec"
	"testing"
	"time"
)

// TestNoticesOfTheMock reads the notices of amazon-ec2-metadata-mock 1.12.0, if it is installed as ec2-metadata-mock.
func TestNoticesOfTheMock(t *testing.T) {
	program, err := exec.LookPath("ec2-metadata-mock")
	if err != nil {
		t.Skip("needs ec2-metadata-mock")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close() // the mock takes the port
	_, port, _ := net.SplitHostPort(address)
	mock := exec.Command(program, "spot", "--imdsv2", "--hostname", "127.0.0.1", "--port", port, "--action", "terminate", "--rebalance-delay-sec", "1", "--mock-delay-sec", "3")
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = mock.Process.Kill()
		_ = mock.Wait() // it was killed
	}()
	source := open(t, "aws", "http://"+address)
	rebalance := false
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-ticker.C {
		n, _ := source(t.Context()) // an error until it listens
		rebalance = rebalance || n.Rebalance
		if left := time.Until(n.Reclaim); !n.Reclaim.IsZero() {
			if !rebalance || left < time.Minute || left > 2*time.Minute+time.Second {
				t.Errorf("deadline in %v, after a rebalance recommendation %t", left, rebalance)
			}
			return
		}
	}
	t.Error("no notice within 30 s")
}
