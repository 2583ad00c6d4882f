package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/auth"
	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/pki"
	"github.com/greylag/greylag/test/cluster"
)

// caller submits over one connection to the leader, and writes HTTP itself, as load generators do:
// processor time that it uses is missing for the controllers on the same machine, and
// http.Transport's part of a call is a third of a client's. Not safe for concurrent use.
type caller struct {
	conn  *tls.Conn
	read  *bufio.Reader
	head  string
	wrote []byte
}

func dialLeader(ctx context.Context, c *cluster.Cluster) (*caller, error) {
	cfg, err := config.LoadClient(c.ConfigFile())
	if err != nil {
		return nil, err
	}
	leader, err := c.Leader(ctx)
	if err != nil {
		return nil, err
	}
	trust, err := pki.LoadTrust(cfg.CAFile)
	if err != nil {
		return nil, err
	}
	token, err := auth.NewSource(cfg.AuthSocket).Token(ctx)
	if err != nil {
		return nil, err
	}
	kind := pki.ClientTLS(trust, nil)
	kind.NextProtos = []string{"http/1.1"}
	at := c.Controller(leader).Addr
	plain, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	head := "POST /greylag.v1.JobService/SubmitJobs HTTP/1.1\r\nHost: " + at + "\r\nContent-Type: application/proto\r\n" +
		"Connect-Protocol-Version: 1\r\nAuthorization: Bearer " + token + "\r\nContent-Length: "
	conn := tls.Client(plain, kind)
	return &caller{conn: conn, read: bufio.NewReader(conn), head: head}, nil
}

// submit returns when the jobs are durable.
func (c *caller) submit(request *greylagv1.SubmitJobsRequest) error {
	c.wrote = append(c.wrote[:0], c.head...)
	c.wrote = strconv.AppendInt(c.wrote, int64(proto.Size(request)), 10)
	c.wrote = append(c.wrote, "\r\n\r\n"...)
	var err error
	if c.wrote, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(c.wrote, request); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.wrote); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("submit: %s: %s", response.Status, body)
	}
	var answer greylagv1.SubmitJobsResponse
	if err := proto.Unmarshal(body, &answer); err != nil {
		return err
	}
	if len(answer.Jobs) != len(request.Jobs) {
		return fmt.Errorf("submit: %d jobs of %d are answered", len(answer.Jobs), len(request.Jobs))
	}
	return nil
}
