package pmi

import (
	"context"
	"strconv"
)

// notOffered answers what this server does not do.
const notOffered = "not supported by this server"

// answers1 lists the commands of PMI-1 whose answer has a name of its own.
var answers1 = map[string]string{
	"init": "response_to_init", "get_maxes": "maxes", "get_appnum": "appnum", "get_my_kvsname": "my_kvsname",
	"get_universe_size": "universe_size", "barrier_in": "barrier_out", "finalize": "finalize_ack",
	"publish_name": "publish_result", "unpublish_name": "unpublish_result", "lookup_name": "lookup_result",
	"mcmd_spawn": "spawn_result",
}

// answer returns the name of the answer to a command.
func (c *client) answer(command string) string {
	if len(command) > maxKey {
		command = command[:maxKey]
	}
	if c.version == 2 {
		return command + "-response"
	}
	if name, ok := answers1[command]; ok {
		return name
	}
	return command + "_result"
}

// handle1 answers a request of PMI-1.
func (c *client) handle1(ctx context.Context, m message) error {
	answer := c.answer(m.command)
	if name, ok := m.pairs["kvsname"]; ok && name != c.config.Job {
		return c.fail(m, answer, "unknown kvsname")
	}
	switch m.command {
	case "get_maxes":
		return c.line(answer, "kvsname_max", strconv.Itoa(maxName), "keylen_max", strconv.Itoa(maxKey), "vallen_max", strconv.Itoa(maxValue))
	case "get_appnum":
		return c.line(answer, "appnum", "0")
	case "get_my_kvsname":
		return c.line(answer, "kvsname", c.config.Job)
	case "get_universe_size":
		return c.line(answer, "size", strconv.Itoa(c.config.Size))
	case "put":
		if err := c.put(c.rank, m.pairs["key"], m.pairs["value"]); err != nil {
			return c.fail(m, answer, err.Error())
		}
		return c.line(answer, "rc", "0")
	case "get":
		value, ok := c.get(m.pairs["key"])
		if !ok {
			return c.fail(m, answer, "key not found")
		}
		return c.line(answer, "rc", "0", "value", value)
	case "barrier_in":
		if err := c.fence(ctx); err != nil {
			return c.fail(m, answer, err.Error())
		}
		return c.line(answer, "rc", "0")
	case "finalize":
		c.finalize()
		return c.line(answer, "rc", "0")
	case "abort":
		c.abort(m)
		return nil
	case "mcmd_spawn":
		if m.pairs["spawnssofar"] != m.pairs["totspawns"] {
			return nil // one answer follows the last
		}
	}
	return c.fail(m, answer, notOffered)
}

// handle2 answers a request of PMI-2.
func (c *client) handle2(ctx context.Context, m message) error {
	answer := c.answer(m.command)
	found := func(value string, ok bool) error {
		if !ok {
			return c.counted(m, answer, "rc", "0", "found", "FALSE")
		}
		return c.counted(m, answer, "rc", "0", "found", "TRUE", "value", value)
	}
	done := func(err error) error {
		if err != nil {
			return c.fail(m, answer, err.Error())
		}
		return c.counted(m, answer, "rc", "0")
	}
	key, value := m.pairs["key"], m.pairs["value"]
	switch m.command {
	case "fullinit":
		return c.counted(m, answer, "rc", "0", "pmi-version", "2", "pmi-subversion", "0", "rank", strconv.Itoa(c.rank),
			"size", strconv.Itoa(c.config.Size), "appnum", "0", "debugged", "FALSE", "pmiverbose", "FALSE")
	case "job-getid":
		return c.counted(m, answer, "rc", "0", "jobid", c.config.Job)
	case "kvs-put":
		return done(c.put(c.rank, key, value))
	case "kvs-get":
		return found(c.get(key))
	case "kvs-fence":
		return done(c.fence(ctx))
	case "info-getjobattr":
		if key == "universeSize" {
			return found(strconv.Itoa(c.config.Size), true)
		}
		return found(c.config.Mapping, key == mappingKey && c.config.Mapping != "")
	case "info-putnodeattr":
		return done(c.putAttribute(c.rank, key, value))
	case "info-getnodeattr":
		return found(c.attribute(ctx, key, m.pairs["wait"] == "TRUE"))
	case "finalize":
		c.finalize()
		return c.counted(m, answer, "rc", "0")
	case "abort":
		c.abort(m)
		return nil
	}
	return c.fail(m, answer, notOffered)
}
