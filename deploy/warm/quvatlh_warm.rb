# frozen_string_literal: true

# A warm process for Ruby: loads an application once and performs its jobs by class name and arguments (PROTOCOL.md).
#
#   bin/rails runner quvatlh_warm.rb          the application is loaded by Rails
#   ruby quvatlh_warm.rb jobs.rb more.rb      these files are
#
# `ReportJob` is performed as an Active Job (perform_now), or as any class with a method `perform`; `Report.build` calls that
# method of the class or module. A job may ask Quvatlh.current whose it is, and raise Quvatlh::Retry or PermanentFailure.

require "json"

module Quvatlh
  VERSION = 1

  # Raised by a job: it did not work out this time; again after so many seconds, as long as attempts are left.
  class Retry < StandardError
    attr_reader :after

    def initialize(text = "not this time", after: nil)
      super(text)
      @after = after
    end
  end

  # Raised by a job: trying again is of no use.
  class PermanentFailure < StandardError; end

  # Raised inside a job that is to end. Not a StandardError, so that a plain `rescue` does not stop it.
  class Cancelled < Exception; end # rubocop:disable Lint/InheritException

  # What is asked for does not exist, or not so.
  class Unfit < StandardError; end

  # The running job.
  class Context
    attr_reader :task, :action, :attempt, :token, :worker
    attr_writer :cancelled

    def initialize(message, channel)
      @task, @action, @attempt, @token, @worker = message.values_at("task", "id", "attempt", "token", "worker")
      @payload = message["payload"]
      @channel = channel
      @cancelled = false
      @told_at = 0.0
    end

    def payload
      @payload && File.binread(@payload)
    end

    def cancelled?
      @cancelled
    end

    # A place where the job may end.
    def heartbeat
      raise Cancelled if @cancelled
    end

    # Of many within a tenth of a second, one is told.
    def progress(percent = nil, text = "")
      now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      return if now - @told_at < 0.1 && percent != 100

      @told_at = now
      message = { type: "progress", id: @action, text: text.to_s[0, 1000] }
      message[:percent] = percent.to_i.clamp(0, 100) if percent
      @channel.say(message)
    end

    def log(*words)
      @channel.say(type: "output", id: @action, stream: "stderr", text: "#{words.join(' ')}\n")
    end
  end

  def self.current
    Thread.current.thread_variable_get(:quvatlh) || Warm.running || raise("no job runs here")
  end

  # Lines of JSON, each written at once.
  class Channel
    def initialize(io)
      @io = io
      @io.sync = true
      @lock = Mutex.new
    end

    def say(message)
      line = JSON.generate(message)
      @lock.synchronize { @io.write("#{line}\n") }
    end
  end

  # Standard output as Ruby code sees it: of the job that writes. Without one it is standard error's.
  class Stream
    def initialize(channel)
      @channel = channel
    end

    def write(*parts)
      text = parts.map { |part| part.to_s.b }.join # as bytes, since parts of two encodings do not join
      context = Warm.running
      if context
        clean = text.force_encoding(Encoding::UTF_8).scrub
        @channel.say(type: "output", id: context.action, stream: "stdout", text: clean)
      else
        $stderr.write(text)
      end
      text.bytesize
    end

    def syswrite(text)
      write(text)
    end

    def write_nonblock(text, **)
      write(text)
    end

    def putc(given)
      write(given.is_a?(String) ? given[0] : (given.to_i & 0xff).chr)
      given
    end

    def <<(text)
      write(text)
      self
    end

    def print(*words)
      write(*words)
      nil
    end

    def puts(*lines)
      write(lines.flatten.then { |all| all.empty? ? "\n" : all.map { |line| line.to_s.end_with?("\n") ? line : "#{line}\n" }.join })
      nil
    end

    def printf(*given)
      write(format(*given))
      nil
    end

    def flush
      self
    end

    def sync
      true
    end

    def sync=(value); end

    def fsync
      0
    end
    alias fdatasync fsync

    def tty?
      false
    end
    alias isatty tty?

    def binmode
      self
    end

    def set_encoding(*, **)
      self
    end

    def external_encoding
      Encoding::UTF_8
    end

    def fileno
      1
    end
    alias to_i fileno

    # A logger that is closed closes its device, and the next job has the same.
    def close; end
    alias close_write close

    def closed?
      false
    end
  end

  # The process: one thread listens, another performs, so that what runs can be told to end.
  class Warm
    class << self
      attr_accessor :running
    end

    def initialize
      @input = $stdin.dup # closed in whatever a job starts, which must not read what is said to this process
      $stdin.reopen(File::NULL)
      @channel = Channel.new($stdout.dup)
      $stdout.reopen($stderr) # what is no Ruby code must not write into the protocol
      $stdout = Stream.new(@channel)
      $stderr.sync = true
      @calls = Queue.new
      @unwanted = {}
      @lock = Mutex.new
    end

    def serve
      @performer = Thread.new { perform_all }
      @performer.report_on_exception = false
      @channel.say(type: "ready", version: VERSION)
      @input.each_line { |line| heard(JSON.parse(line)) }
      exit!(0) # nobody is there any more
    end

    private

    def heard(message)
      case message["type"]
      when "run" then @calls << message
      when "stop" then message["id"] ? stop(message["id"]) : @calls << nil
      end
    end

    def stop(id)
      @lock.synchronize do
        context = self.class.running
        if context&.action == id
          context.cancelled = true
          @performer.raise(Cancelled)
        else
          @unwanted[id] = true
        end
      end
    end

    def perform_all
      while (message = @calls.pop)
        perform(message)
      end
      Thread.main.raise(SystemExit) # with at_exit blocks, unlike the end of standard input
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn(e.full_message(highlight: false))
      exit!(1)
    end

    # An interruption is let in only while the job itself runs: then it is the job's, and no other's.
    def perform(message)
      context = Context.new(message, @channel)
      answer = nil
      begin
        Thread.handle_interrupt(Cancelled => :never) do
          answer = answered(context, message)
          @lock.synchronize { self.class.running = nil }
        end
      rescue Cancelled
        nil # it came after the job's end
      end
      @channel.say(answer.merge(id: context.action))
    end

    def answered(context, message)
      began = Time.now
      wanted = @lock.synchronize do
        self.class.running = context
        !@unwanted.delete(context.action)
      end
      return { type: "error", stopped: true, text: "stopped" } unless wanted

      value = Thread.handle_interrupt(Cancelled => :immediate) { called(message) }
      result(value).merge(began: (began.to_f * 1000).to_i, ms: (Time.now - began) * 1000)
    rescue Exception => e # rubocop:disable Lint/RescueException
      return { type: "error", stopped: true, text: "stopped" } if e.is_a?(Cancelled) && context.cancelled?

      failure(e).merge(began: (began.to_f * 1000).to_i)
    ensure
      $stderr.flush
    end

    def result(value)
      return { type: "result" } if value.nil?

      plain = value.respond_to?(:as_json) ? value.as_json : value
      JSON.generate(plain)
      { type: "result", value: plain }
    rescue StandardError => e
      { type: "error", unfit: true, text: "what it returned has no form in JSON: #{e.message}" }
    end

    def failure(error)
      said = { type: "error", class: error.class.name.to_s, text: error.message.to_s.dup.force_encoding("UTF-8").scrub[0, 1000] }
      case error
      when Unfit then { type: "error", unfit: true, text: said[:text] }
      when Retry then said.merge(after: error.after)
      else
        trace = error.full_message(highlight: false, order: :top).dup.force_encoding("UTF-8").scrub
        said.merge(trace: trace, permanent: error.is_a?(PermanentFailure))
      end
    end

    # Looked up inside: what was there before may be code that has changed since.
    def called(message)
      method = nil
      args = message["args"]
      kwargs = message["kwargs"].transform_keys(&:to_sym)
      within do
        target, method = found(message["call"])
        if method then target.public_send(method, *args, **kwargs)
        elsif target.respond_to?(:perform_now) then target.perform_now(*args, **kwargs)
        else target.new.perform(*args, **kwargs)
        end
      end
    rescue ArgumentError => e
      raise unless of_the_call?(e, method || "perform")

      raise Unfit, "its arguments do not fit: #{e.message}"
    end

    # Raised on the way into the job, and not by what it does.
    def of_the_call?(error, method)
      error.message.match?(/\A(wrong number of arguments|missing keyword|unknown keyword)/) &&
        error.backtrace_locations&.first&.base_label == method
    end

    def found(call)
      name, _, method = call.partition(".")
      target = name.split("::").inject(Object) { |place, part| place.const_get(part) }
      unless method.empty?
        raise Unfit, "#{name} has no method #{method}" unless target.respond_to?(method)

        return target, method
      end
      performs = target.respond_to?(:perform_now) || (target.is_a?(Class) && target.method_defined?(:perform))
      raise Unfit, "#{name} is no job: it has no method perform" unless performs

      [target, nil]
    rescue NameError => e
      raise Unfit, "there is no #{call}: #{e.message.lines.first.strip}"
    end

    # What Rails does around each piece of work: connections go back, changed code is loaded anew in development.
    def within(&block)
      return yield unless defined?(::Rails.application) && ::Rails.application

      ::Rails.application.reloader.wrap(&block)
    end
  end
end

warm = Quvatlh::Warm.new
ARGV.each { |file| require File.expand_path(file) } unless defined?(Rails)
Rails.application.eager_load! if defined?(Rails.application) && Rails.application && !Rails.application.config.eager_load
warm.serve
