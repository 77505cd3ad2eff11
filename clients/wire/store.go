package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/lockcheck/lockcheck/clients"
)

// A StoreRequest is what a worker sends to the fenced store, by POST to /read
// or /write.
type StoreRequest struct {
	Key   string  `json:"key"`
	Grant uint64  `json:"grant,omitempty"`
	Token *uint64 `json:"token,omitempty"`
	Value *int64  `json:"value,omitempty"` // write
}

// A StoreReply is what the fenced store answers: 200 with the value, or 409
// with the error "fenced".
type StoreReply struct {
	Value *int64 `json:"value,omitempty"`
	Seq   uint64 `json:"seq,omitempty"`
	Error string `json:"error,omitempty"`
}

// A StoreClient talks to the fenced store over connections of its own.
type StoreClient struct {
	url  string
	http *http.Client
}

// NewStoreClient makes a client for the store at url. It does not connect yet.
func NewStoreClient(url string) *StoreClient {
	return &StoreClient{url, &http.Client{Transport: &http.Transport{MaxIdleConns: 2, DisableCompression: true}}}
}

// Close ends the idle connections.
func (s *StoreClient) Close() { s.http.CloseIdleConnections() }

// Do carries out a read or a write. Only a refusal by the store, or a
// connection that was never made, proves that a write did not happen.
func (s *StoreClient) Do(ctx context.Context, c Command) Message {
	body, err := json.Marshal(StoreRequest{Key: c.Key, Grant: c.Grant, Token: c.Token, Value: c.Value})
	if err != nil {
		return failed(clients.NotDone(err))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/"+c.Op, bytes.NewReader(body))
	if err != nil {
		return failed(clients.NotDone(err))
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return failed(clients.NeverSent(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return failed(fmt.Errorf("%s %s: %w", c.Op, c.Key, err))
	}
	var r StoreReply
	if err := json.Unmarshal(text, &r); err != nil {
		return failed(fmt.Errorf("%s %s: the store answered %s: %q", c.Op, c.Key, resp.Status, text))
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return Message{Type: OK, Value: r.Value}
	case http.StatusConflict, http.StatusBadRequest:
		return Message{Type: Fail, Error: r.Error}
	}
	return Message{Type: Info, Error: fmt.Sprintf("the store answered %s: %s", resp.Status, r.Error)}
}
