// Copyright 2025 the dsm-pipeline authors
// SPDX-License-Identifier: Apache-2.0

`default_nettype none

// Tachometer of the Aurora FC1: counts rising edges of the fan's TACH signal in a measuring window
// and raises `stall` when a whole window passes without an edge. The input is synchronised with two
// flip-flops and sampled on every clock cycle, as in silicon revision A1.
module fc1_tach #(
    parameter WINDOW = 1000  // clock cycles per measuring window
) (
    input  wire        clk,
    input  wire        rst_n,
    input  wire        tach,    // open-drain output of the fan, asynchronous
    output reg  [15:0] count,   // edges in the last complete window
    output reg         valid,   // one clock cycle when count is new
    output reg         stall    // no edge in the last complete window
);

  reg [2:0] history;
  reg [15:0] edges;
  reg [31:0] timer;
  wire rising = history[1] & ~history[2];
  wire [15:0] edges_now = edges + {15'd0, rising};

  always @(posedge clk or negedge rst_n) begin
    if (!rst_n) begin
      history <= 3'b000;
      edges <= 16'd0;
      timer <= 32'd0;
      count <= 16'd0;
      valid <= 1'b0;
      stall <= 1'b0;
    end else begin
      history <= {history[1:0], tach};
      valid <= 1'b0;
      if (timer == WINDOW - 1) begin
        timer <= 32'd0;
        edges <= 16'd0;
        count <= edges_now;
        valid <= 1'b1;
        stall <= edges_now == 16'd0;
      end else begin
        timer <= timer + 32'd1;
        edges <= edges_now;
      end
    end
  end

endmodule

`default_nettype wire
